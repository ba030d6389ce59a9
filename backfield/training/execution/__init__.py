"""Map over chunks of examples."""

from backfield.training.execution.threads import N_CHUNKS as N_CHUNKS
from backfield.training.execution.threads import active as active
from backfield.training.execution.threads import one_blas_thread as one_blas_thread
from backfield.training.execution.threads import sum_over_chunks as sum_over_chunks
from backfield.training.execution.threads import using as using
