"""The interfaces of other packages, on estimators of this one."""
