"""Film a session of ``backfield label`` in a real browser: the animated picture of the README.

    python -m backfield_benchmarks.label_film docs/images/label.webp [--browser /usr/bin/chromium]

Labels two free pictures of scikit-image (coffee by Rachel Michetti, CC0; the cat Chelsea by Stefan van der Walt, CC0):
strokes, the field after each, uncertainty, the next place, the export. Frames are screenshots of the page and nothing else.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from PIL import Image

SIZE = (1120, 700)
#: (label, points as shares of the image): what is painted on the coffee.
STROKES = [
    (0, [(0.05, 0.14), (0.25, 0.06), (0.32, 0.05)]),
    (1, [(0.3, 0.62), (0.42, 0.8), (0.6, 0.84)]),
    (1, [(0.35, 0.2), (0.34, 0.38), (0.42, 0.52), (0.58, 0.5)]),
    (0, [(0.05, 0.6), (0.1, 0.92), (0.25, 0.95)]),
    (1, [(0.74, 0.4), (0.74, 0.55)]),
    (0, [(0.86, 0.12), (0.94, 0.5), (0.92, 0.9)]),
    (1, [(0.46, 0.06), (0.6, 0.12), (0.64, 0.22)]),
]


class Film:
    """Screenshots and how long each is shown."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.times: list[int] = []
        self.painted = 0

    def take(self, milliseconds: int) -> None:
        picture = Image.open(io.BytesIO(self.page.screenshot(type="png"))).convert("RGB")
        self.frames.append(picture.resize((SIZE[0] * 3 // 4, SIZE[1] * 3 // 4), Image.Resampling.LANCZOS))
        self.times.append(milliseconds)

    def write(self, path: Path) -> None:
        first, *rest = self.frames
        first.save(path, save_all=True, append_images=rest, duration=self.times, loop=0, quality=70, method=6)


def stroke(film: Film, points: list[tuple[float, float]], size: tuple[int, int]) -> None:
    """Move the mouse as a hand does, with two frames on the way and one when the picture has come."""
    page = film.page
    box = page.locator("#canvas").bounding_box()
    scale = min(box["width"] / size[0], box["height"] / size[1]) * 0.96
    left, top = box["x"] + (box["width"] - size[0] * scale) / 2, box["y"] + (box["height"] - size[1] * scale) / 2
    at = [(left + x * size[0] * scale, top + y * size[1] * scale) for x, y in points]
    version = int(page.evaluate("() => document.documentElement.dataset.version || 0"))
    page.mouse.move(*at[0])
    page.mouse.down()
    for number, place in enumerate(at[1:]):
        page.mouse.move(*place, steps=8)
        if number == 0:
            page.wait_for_timeout(60)
            film.take(220)
    page.mouse.up()
    page.wait_for_timeout(60)
    film.take(200)
    if film.painted:  # one label alone is nothing to learn from
        page.wait_for_function(f"() => Number(document.documentElement.dataset.version || 0) > {version}", timeout=60_000)
        page.wait_for_timeout(900)
    film.painted += 1
    film.take(900)


def record(out: Path, browser: str) -> None:
    from playwright.sync_api import sync_playwright
    from skimage import data

    from backfield.labelling import Session
    from backfield.labelling.serve import Served

    folder = Path(tempfile.mkdtemp()) / "breakfast"
    folder.mkdir()
    pictures = {"coffee": data.coffee(), "chelsea": data.chelsea()}
    for name, pixels in pictures.items():
        Image.fromarray(pixels).save(folder / f"{name}.png")
    served, up = Served(Session(folder, ["table", "cup"])), threading.Event()
    thread = threading.Thread(target=served.run, args=[up.set], daemon=True)
    thread.start()
    up.wait(30)
    try:
        with sync_playwright() as play:
            window = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = window.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
            page.goto(served.url)
            page.wait_for_selector("html[data-ready=yes]")
            page.locator("#images button").nth(1).click()
            page.wait_for_timeout(1500)
            film = Film(page)
            film.take(900)
            height, width = pictures["coffee"].shape[:2]
            for label, points in STROKES:
                page.keyboard.press(str(label + 1))
                stroke(film, points, (width, height))
            page.check("#layer-uncertainty")
            page.wait_for_timeout(200)
            film.take(1500)
            page.uncheck("#layer-uncertainty")
            page.click("#next")
            page.wait_for_timeout(400)
            film.take(1600)
            page.click("#fit")
            page.click("#export")
            page.wait_for_selector("html[data-export=done]", timeout=120_000)
            page.wait_for_timeout(200)
            page.evaluate("() => document.querySelector('aside').scrollTo(0, 9999)")
            film.take(2500)
            window.close()
        film.write(out)
    finally:
        served.stop()
        thread.join(20)
        shutil.rmtree(folder.parent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    options = parser.parse_args()
    record(options.out, options.browser)
    print(f"wrote {options.out}, {options.out.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
