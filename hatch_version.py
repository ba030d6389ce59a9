"""The version, for the build: of the last tag ``v*``, of PKG-INFO in an sdist, or ``FALLBACK`` where there is neither."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

#: What a clone without tags is called.
FALLBACK = "0.1.0"


def version(root: Path | None = None) -> str:
    """Return 0.2.0 at the tag v0.2.0, 0.2.1.dev5+gabc1234 five commits after it."""
    root = root or Path(__file__).parent
    if (root / "PKG-INFO").exists():
        found = re.search(r"^Version: (.+)$", (root / "PKG-INFO").read_text(), re.MULTILINE)
        assert found is not None
        return found[1]
    command = ["git", "-C", str(root), "describe", "--tags", "--long", "--match", "v[0-9]*"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return FALLBACK
    major, minor, patch, commits, commit = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)-(\d+)-(g\w+)\n", described).groups()  # type: ignore[union-attr]
    return f"{major}.{minor}.{patch}" if commits == "0" else f"{major}.{minor}.{int(patch) + 1}.dev{commits}+{commit}"
