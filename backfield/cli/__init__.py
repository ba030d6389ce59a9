"""The command line: what can be done without writing Python."""


def main(arguments: list[str] | None = None) -> None:
    """Run ``backfield`` with the given or the shell's arguments, and exit: 0 done, 1 failed, 2 bad usage or input."""
    import sys

    from backfield.cli.app import run

    sys.exit(run(sys.argv[1:] if arguments is None else arguments))
