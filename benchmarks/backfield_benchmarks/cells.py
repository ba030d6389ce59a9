"""Results of a study, cell by cell: each is saved when it is done, and a study that is started again goes on."""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/results/studies"


def commit_of_sources():
    """Return the last commit that changed the library or the benchmarks, with a mark if they differ from it."""

    def git(*arguments):
        sources = ("--", "backfield", "benchmarks")
        return subprocess.run(["git", "-C", ROOT, *arguments, *sources], capture_output=True, text=True, check=True).stdout

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("log", "-1", "--format=%h").strip() + " with changes" * bool(changed)


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
