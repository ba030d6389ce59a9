"""Exact inference: enumeration, forward-backward, junction tree."""
