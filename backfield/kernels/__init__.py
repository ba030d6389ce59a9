"""What kernels share: how they are compiled, vector mathematics, unrolled loops."""
