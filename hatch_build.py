"""What an index page shows, for the build: the address of the repository, and a README whose links lead there.

The address is that of the workflow that builds (GITHUB_REPOSITORY) or of the remote ``origin``. A build that knows neither,
of a clone of a folder, has no addresses and keeps the README as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# [text](docs/page.md) and ![text](docs/picture.png), but not [text](https://...) and [text](#part).
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)]+)\)")


class IndexPage(MetadataHookInterface):
    """Fills in ``readme`` and ``urls``; in an sdist both are read from PKG-INFO."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add what is not known before the build."""
        if "readme" not in metadata.get("dynamic", []):
            return
        home, text = address(Path(self.root)), Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, home) if home else text}
        metadata["urls"] = urls(home) if home else {}


def address(root: Path) -> str:
    """Return the address of the repository's page, or nothing."""
    if "GITHUB_REPOSITORY" in os.environ:
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        return f"{server}/{os.environ['GITHUB_REPOSITORY']}"
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        origin = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    # https://user:token@host/owner/name.git and git@host:owner/name.git
    found = re.fullmatch(r"(?:https://(?:[^@/]+@)?([\w.-]+)/|(?:ssh://)?git@([\w.-]+)[:/])(.+?)(?:\.git)?/?", origin)
    return f"https://{found[1] or found[2]}/{found[3]}" if found else ""


def absolute(text: str, home: str) -> str:
    """Return Markdown whose links to files of the repository lead to ``home``; pictures to the files themselves."""
    return _LINK.sub(lambda link: f"{link[1]}[{link[2]}]({home}/{'raw' if link[1] else 'blob'}/HEAD/{link[3]})", text)


def urls(home: str) -> dict[str, str]:
    """Return the links in the margin of an index page."""
    return {
        "Source": home,
        "Documentation": f"{home}/blob/HEAD/docs/index.md",
        "Changes": f"{home}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }
