"""The entropy-smoothed linear program ([L13] §5)."""
