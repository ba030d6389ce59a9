"""Pages in Chromium without a network: what is wrong with them, and screenshots.

``python -m tests.docs.browser OUT FOLDER_OR_FILE...`` opens every page of a built site, or a single HTML file, at 1280 and
400 pixels, light and dark, writes screenshots and contact sheets to OUT, and lists the faults it finds.
"""

import contextlib
import functools
import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("BACKFIELD_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "")
WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")

#: Faults that the page itself can tell. Code is highlighted where any of its tokens has a class.
FAULTS = """() => {
  const faults = [], width = document.documentElement.clientWidth;
  const root = document.scrollingElement;
  if (root.scrollWidth > width) faults.push(`the page is ${root.scrollWidth} pixels wide, the window ${width}`);
  const scrolls = e => { for (; e && e !== document.body; e = e.parentElement)
    if (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX)) return true; return false; };
  for (const e of document.querySelectorAll('article *, main *, section *')) {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > width + 1 && !scrolls(e.parentElement)) {
      faults.push(`<${e.tagName.toLowerCase()} class="${e.className}"> ends at ${Math.round(box.right)} of ${width}: ` +
        e.textContent.trim().slice(0, 40)); break; }
  }
  for (const image of document.images)
    if (image.getAttribute('src') && image.complete && !image.naturalWidth)
      faults.push(`the image ${image.getAttribute('src').slice(0, 80)} is broken`);
  for (const code of document.querySelectorAll('[class*=language-]')) {
    const plain = /language-(text|console|none)\\b/.test(code.className);
    if (!plain && code.textContent.trim() && !code.querySelector('span[class]'))
      faults.push('not highlighted: ' + code.textContent.trim().slice(0, 60));
  }
  for (const text of document.querySelectorAll('mtext'))
    if (text.textContent.includes('\\\\')) faults.push('formula: ' + text.textContent);
  return faults;
}"""


class Fault(NamedTuple):
    """Something wrong with a page."""

    page: str
    what: str


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; gives its address."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Start Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


class Viewer:
    """Opens pages of one address; everything from elsewhere is refused and noted, and so are errors of scripts."""

    def __init__(self, chromium: Any, address: str, scheme: str = "light") -> None:
        self.address = address
        self.scheme = scheme
        self.faults: list[Fault] = []
        self.name = ""
        self.page = chromium.new_context(color_scheme=scheme).new_page()
        self.page.route("**/*", self._route)
        self.page.on("console", lambda message: self._note(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self._note(str(error)))

    def _route(self, route: Any) -> None:
        if route.request.url.startswith((self.address, "data:", "blob:")):
            route.continue_()
        else:
            self._note(f"asks for {route.request.url}")
            route.abort()

    def _note(self, what: str) -> None:
        if Fault(self.name, what) not in self.faults:
            self.faults.append(Fault(self.name, what))

    def look(self, name: str, out: Path | None = None) -> None:
        """Open a page, and look at it from the widest window to the narrowest."""
        self.name = name
        self.page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        self.page.goto(f"{self.address}/{name}", wait_until="load")
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            for what in self.page.evaluate(FAULTS):
                self._note(f"{what} ({width} px, {self.scheme})")
            if out:
                self.page.wait_for_timeout(150)
                stem = name.replace("/index.html", "").replace("/", "-").replace(".html", "")
                self.page.screenshot(path=out / f"{stem}-{width}-{self.scheme}.png", full_page=True)


def pages(folder: Path) -> list[str]:
    """Return the paths of all pages of a built site."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob("**/*.html") if path.name != "404.html")


def main(out: Path, *places: Path) -> int:
    """Look at sites and files; return 1 if anything is wrong."""
    out.mkdir(parents=True, exist_ok=True)
    faults: list[Fault] = []
    with browser() as chromium:
        for place in places:
            folder, names = (place, pages(place)) if place.is_dir() else (place.parent, [place.name])
            with served(folder) as address:
                for scheme in SCHEMES:
                    viewer = Viewer(chromium, address, scheme)
                    for name in names:
                        viewer.look(name, out)
                    faults += viewer.faults
    for fault in faults:
        print(f"{fault.page}: {fault.what}")
    sheets(out)
    return int(bool(faults))


def sheets(out: Path, height: int = 1500) -> None:
    """Join the tops of screenshots into sheets: all pages of one width and scheme, side by side."""
    from PIL import Image

    (out / "sheets").mkdir(exist_ok=True)
    for width in WIDTHS:
        for scheme in SCHEMES:
            found = sorted(out.glob(f"*-{width}-{scheme}.png"))
            each = 3 if width == WIDTHS[0] else 8
            for k in range(0, len(found), each):
                shots = [Image.open(path).convert("RGB") for path in found[k : k + each]]
                sheet = Image.new("RGB", (width * len(shots), height), "grey")
                for j, shot in enumerate(shots):
                    sheet.paste(shot.crop((0, 0, width, min(height, shot.height))), (j * width, 0))
                sheet.resize((sheet.width // 2, height // 2)).save(out / "sheets" / f"{width}-{scheme}-{k // each:02d}.png")


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
