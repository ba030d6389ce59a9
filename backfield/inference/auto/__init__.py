"""Exact where it fits, else bounds that tighten with time."""
