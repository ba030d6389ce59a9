"""Map over chunks of examples."""

from backfield.execution.threads import sum_over_chunks as sum_over_chunks
