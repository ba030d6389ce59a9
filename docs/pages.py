"""The code of the pages: what is run, and the pictures it draws.

``python docs/pages.py [NAME ...]`` runs the tutorials, each in an empty folder, and keeps the pictures that they show in
docs/images/tutorials. Tests run every page the same way and compare what it prints with the text blocks after the code.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path

DOCS = Path(__file__).parent
PICTURES = DOCS / "images" / "tutorials"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PICTURE = re.compile(r"\(\.\./images/tutorials/([\w-]+\.png)\)")


def blocks(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield (language, content, expected output or None) of each block that is run."""
    found = _BLOCK.findall(text)
    for k, (language, content) in enumerate(found):
        if language in ("python", "sh"):
            after = found[k + 1] if k + 1 < len(found) else ("", "")
            yield language, content, after[1] if after[0] == "text" else None


def pictures(text: str) -> list[str]:
    """Return the names of the pictures that the code of a page draws."""
    return _PICTURE.findall(text)


def run(path: Path, check: Callable[[int, str | None], None] = lambda number, expected: None) -> int:
    """Run the blocks of a page in the current folder; ``check(number, expected)`` comes after each. Returns their number."""
    page = types.ModuleType(path.stem)
    sys.modules[path.stem] = page  # where pickle looks for the classes of the page
    number = -1
    try:
        for number, (language, content, expected) in enumerate(blocks(path.read_text())):
            if language == "sh":
                _run_shell(content)
            else:
                exec(compile(content, f"{path.name}, block {number}", "exec"), vars(page))
            check(number, expected)
    finally:
        del sys.modules[path.stem]
    return number + 1


def _run_shell(content: str) -> None:
    from backfield.cli.app import run as command

    for line in content.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "backfield", f"only backfield is run here: {line}"
            assert command(words[1:]) == 0, line


def main(names: list[str]) -> None:
    """Run tutorials and keep their pictures."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    PICTURES.mkdir(exist_ok=True)
    start = os.getcwd()
    for path in [DOCS / "tutorials" / f"{name}.md" for name in names] or sorted((DOCS / "tutorials").glob("*.md")):
        drawn = pictures(path.read_text())
        if drawn:
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                run(path)
                for name in drawn:
                    shutil.copy(name, PICTURES / name)
                os.chdir(start)
            print(f"{path.stem}: {', '.join(drawn)}")


if __name__ == "__main__":
    main(sys.argv[1:])
