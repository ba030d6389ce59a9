"""w -> value and gradient over examples."""
