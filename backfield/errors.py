"""The three things that can be wrong: the input, the machines, or the convergence of an iteration."""


class InputError(ValueError):
    """Invalid input. The message states in one line what was received, what is needed and where."""

    def __init__(self, message: object = "") -> None:
        super().__init__(" ".join(line.strip() for line in str(message).splitlines()))  # arrays are shown in several


class ClusterError(RuntimeError):
    """Machines that do not answer, or are lost in the midst of the work."""


class ConvergenceWarning(UserWarning):
    """An iteration stopped before it reached the tolerance it was given."""
