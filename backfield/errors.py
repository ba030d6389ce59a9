"""The two things that can be wrong: the input, or the convergence of an iteration."""


class InputError(ValueError):
    """Input that cannot be used: says what was got, what is needed and where."""


class ConvergenceWarning(UserWarning):
    """An iteration stopped before it reached the tolerance it was given."""
