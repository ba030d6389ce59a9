"""Other people's autograd; each bridge imports its library, so none is imported here."""
