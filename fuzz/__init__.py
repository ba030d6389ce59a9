"""Campaigns of mutated files and bad arguments; see README.md."""
