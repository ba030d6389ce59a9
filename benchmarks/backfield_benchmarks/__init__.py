"""Everything that measures speed: ``backfield bench``, and scripts beside other libraries (``python -m``)."""
