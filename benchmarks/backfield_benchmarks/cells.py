"""Results of a study, cell by cell: each is saved when it is done, and a study that is started again goes on."""

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs/results/studies"


class Cells:
    """Rows by name in a JSON file.

    Parameters
    ----------
    path : path, or the name of a file in docs/results/studies
    command : str
        What makes the file.
    """

    def __init__(self, path, command):
        self.path = Path(path) if Path(path).suffix else FOLDER / f"{path}.json"
        self.command = command
        kept = json.loads(self.path.read_text()) if self.path.exists() else {"cells": {}}
        self.rows = kept["cells"]
        #: What the page of studies shows instead of the cells, where these are long.
        self.summary = kept.get("rows", [])

    def get(self, name, compute):
        """Return a cell, computed and saved if it is not there yet."""
        if name not in self.rows:
            self.rows[name] = compute()
            print(name, json.dumps(self.rows[name]), flush=True)
            self.save()
        return self.rows[name]

    def save(self):
        """Write the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = {"rows": self.summary} if self.summary else {}
        self.path.write_text(json.dumps({"command": self.command, **rows, "cells": self.rows}, indent=1) + "\n")
