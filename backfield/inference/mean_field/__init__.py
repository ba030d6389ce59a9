"""Mean field ([D13] §3.2)."""
