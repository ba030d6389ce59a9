"""What kernels share: how they are compiled and kept, vector mathematics, unrolled loops."""

from backfield.kernels import cache as cache  # before the first kernel: it finds a place, ...
from backfield.kernels import compiling as compiling  # ... and this watches
