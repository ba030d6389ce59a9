"""``python -m backfield``."""

from backfield.cli import main

if __name__ == "__main__":
    main()
