"""A real browser: strokes on two images, layers that change, undo, reload, another label, an export."""

import os
import shutil
import time

import numpy as np
import pytest

from tests.labelling.conftest import Image, serving, write_volumes

sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra test)")
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("BACKFIELD_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "")
if not CHROMIUM:
    pytest.skip(f"there is no {' or '.join(NAMES)} (BACKFIELD_CHROMIUM names another)", allow_module_level=True)
#: Set this to a folder to keep screenshots.
PICTURES = os.environ.get("BACKFIELD_SCREENSHOTS")
WAIT = 120_000


class Hand:
    """A person at the page."""

    def __init__(self, page, url):
        self.page = page
        self.errors = []
        page.set_default_timeout(WAIT)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.open(url)

    def open(self, url):
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready=yes]", timeout=WAIT)

    def at(self, x, y):
        """Where a point of the image (as shares of it, the image shown whole) is on the page."""
        box = self.page.locator("#canvas").bounding_box()
        scale = min(box["width"] / 90, box["height"] / 72) * 0.96
        left, top = box["x"] + (box["width"] - 90 * scale) / 2, box["y"] + (box["height"] - 72 * scale) / 2
        return left + x * 90 * scale, top + y * 72 * scale

    def stroke(self, *points):
        revision = self.data("revision")
        self.page.mouse.move(*self.at(*points[0]))
        self.page.mouse.down()
        for point in points[1:]:
            self.page.mouse.move(*self.at(*point), steps=5)
        self.page.mouse.up()
        self.until(f"d => d.revision !== '{revision}' && d.waiting === '0'")

    def data(self, name):
        return self.page.evaluate(f"() => document.documentElement.dataset.{name} || ''")

    def until(self, condition):
        self.page.wait_for_function(f"() => ({condition})(document.documentElement.dataset)", timeout=WAIT)

    def new_layers(self, before):
        self.until(f"d => Number(d.version || 0) > {int(before or 0)}")

    def changed(self, before):
        """Wait until the canvas shows something else."""
        end = time.monotonic() + WAIT / 1000
        while self.pixels() == before:
            assert time.monotonic() < end

    def drawn(self):
        """Wait until what was asked for is on the canvas: it is drawn in the next frame."""
        self.page.evaluate("() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def scale(self):
        self.drawn()
        return self.page.evaluate("() => document.getElementById('canvas').getContext('2d').getTransform().a")

    def pixels(self):
        """The colour of the canvas at many places."""
        self.drawn()
        return self.page.evaluate(
            """() => { const c = document.getElementById('canvas');
                 const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let out = [];
                 for (let k = 0; k < d.length; k += 4 * 997) out.push(d[k], d[k + 1], d[k + 2]); return out; }"""
        )

    def picture(self, name):
        if PICTURES:
            self.page.screenshot(path=f"{PICTURES}/{name}.png")


@pytest.fixture
def browser():
    with sync.sync_playwright() as play:
        made = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


def test_a_person_labels_a_folder(browser, served):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    hand = Hand(page, served.url)
    empty = hand.pixels()
    assert page.locator("#images button").count() == 3
    hand.stroke((0.05, 0.08), (0.9, 0.1))
    page.keyboard.press("2")
    hand.stroke((0.45, 0.5), (0.58, 0.5))
    hand.new_layers(0)
    assert hand.pixels() != empty
    hand.picture("desktop-two-strokes")

    # Layers are switched and blended.
    shown = hand.pixels()
    page.uncheck("#layer-field")
    assert hand.pixels() != shown
    page.check("#layer-uncertainty")
    page.check("#layer-classifier")
    hand.picture("desktop-layers")
    page.uncheck("#layer-uncertainty")
    page.uncheck("#layer-classifier")
    page.check("#layer-field")

    # Undo and redo, by key and button, on disk too.
    mask = served.session.images[0].mask
    before = np.asarray(Image.open(mask))
    revision = hand.data("revision")
    page.keyboard.press("Control+z")
    hand.until(f"d => d.revision !== '{revision}' && d.waiting === '0'")
    assert not (np.asarray(Image.open(mask)) == 1).any()
    page.click("#redo")
    hand.until(f"d => Number(d.revision) >= {int(revision) + 2} && d.waiting === '0'")
    assert (np.asarray(Image.open(mask)) == before).all()

    # Zoom survives a stroke.
    page.mouse.move(*hand.at(0.5, 0.5))
    whole = hand.scale()
    page.mouse.wheel(0, -400)
    page.wait_for_function(
        f"() => document.getElementById('canvas').getContext('2d').getTransform().a > {whole}", timeout=WAIT
    )
    zoomed = hand.scale()
    page.click("#size")
    page.mouse.move(*hand.at(0.5, 0.5))
    revision = hand.data("revision")
    page.mouse.down()
    page.mouse.up()
    hand.until(f"d => d.revision !== '{revision}' && d.waiting === '0'")
    assert hand.scale() == zoomed
    page.click("#fit")

    # A second image, an added label, and a fill with it.
    page.locator("#images button").nth(1).click()
    hand.until("d => d.shown === '1'")
    assert page.locator("#images button").nth(1).get_attribute("aria-current") == "true"
    page.fill("#new-name", "rim")
    page.click("#new-label button")
    page.wait_for_selector("#labels li:nth-child(3).chosen")
    hand.stroke((0.5, 0.52), (0.55, 0.52))
    assert (np.asarray(Image.open(served.session.images[1].mask)) == 2).any()
    hand.picture("desktop-second-image")

    # A second window hears of a label's new name, and shows the image whole when its size changes.
    other = Hand(browser.new_page(viewport={"width": 1000, "height": 700}), served.url)
    name = page.locator("#labels input[type=text]").nth(2)
    name.fill("edge")
    name.press("Enter")
    other.page.wait_for_function("() => document.querySelectorAll('#labels input[type=text]')[2].value === 'edge'")
    large = other.scale()
    other.page.set_viewport_size({"width": 700, "height": 500})
    other.page.wait_for_function(f"() => document.getElementById('canvas').getContext('2d').getTransform().a < {large}")
    assert not other.errors
    other.page.close()

    # Reload: all is as it was.
    hand.open(served.url)
    assert page.locator("#labels li").count() == 3
    hand.new_layers(0)
    assert page.locator("#images .painted").count() == 2

    # Next place, then the export.
    page.click("#next")
    page.wait_for_function("() => document.getElementById('message').textContent.length > 5", timeout=WAIT)
    page.click("#export")
    hand.until("d => d.export === 'done'")
    assert "backfield predict" in page.locator("#export-lines").text_content()
    assert (served.session.folder / "model.bf").exists()
    hand.open(served.url)
    assert hand.data("export") == "done" and "backfield predict" in page.locator("#export-lines").text_content()
    hand.picture("desktop-export")
    assert not hand.errors


@pytest.fixture
def volumes(tmp_path):
    pytest.importorskip("tifffile", reason="needs the extra volumes")
    pytest.importorskip("zarr", reason="needs the extra volumes")
    return write_volumes(tmp_path / "volumes")


def test_a_person_labels_a_volume(browser, volumes):
    """Slides, paints on two slices, sees layers on them and on others, undoes, reloads, exports."""
    with serving(volumes) as served:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        hand = Hand(page, served.url)
        session = served.session
        assert page.locator("#images button").count() == 2 and page.locator("#slices output").text_content() == "5 / 9"
        hand.stroke((0.05, 0.08), (0.9, 0.1))
        page.keyboard.press("2")
        hand.stroke((0.45, 0.5), (0.55, 0.5))
        hand.new_layers(0)
        assert hand.data("shown") == "4" and (session.canvas(4).labels == 1).any()

        # Keys, buttons, the wheel with Shift, the slider; the zoom stays.
        page.mouse.move(*hand.at(0.5, 0.5))
        page.mouse.wheel(0, -300)
        zoomed = hand.scale()
        page.keyboard.press(".")
        hand.until("d => d.shown === '5'")
        page.locator("#slices button").nth(1).click()
        hand.until("d => d.shown === '6'")
        page.mouse.move(*hand.at(0.5, 0.5))
        page.keyboard.down("Shift")
        page.mouse.wheel(0, -100)
        page.keyboard.up("Shift")
        hand.until("d => d.shown === '5'")
        page.keyboard.press(",")
        hand.until("d => d.shown === '4'")
        assert hand.scale() == zoomed
        page.click("#fit")
        page.locator("#slice").fill("8")
        hand.until("d => d.shown === '7'")
        assert page.locator("#slices output").text_content() == "8 / 9"

        # Another slice has layers of what was learned on the first; a stroke on it changes them.
        hand.new_layers(0)
        learned = hand.pixels()
        version = hand.data("version")
        hand.stroke((0.45, 0.45), (0.55, 0.55))
        hand.new_layers(version)
        hand.changed(learned)
        hand.until("d => d.busy === ''")
        hand.picture("desktop-volume")
        assert (session.canvas(7).labels == 1).any()
        assert "2 of 9 slices" in page.locator("#images .share").first.text_content()
        assert page.locator("#slices .marks i").count() == 2

        # Undo takes back what was painted on the slice that is seen.
        revision = hand.data("revision")
        page.keyboard.press("Control+z")
        hand.until(f"d => d.revision !== '{revision}' && d.waiting === '0'")
        assert (session.canvas(7).labels == 255).all() and (session.canvas(4).labels == 1).any()
        page.click("#redo")
        hand.until(f"d => Number(d.revision) >= {int(revision) + 2} && d.waiting === '0'")

        # Reload: the same slice, with its strokes.
        hand.open(served.url)
        assert hand.data("shown") == "7" and page.locator("#slices output").text_content() == "8 / 9"
        hand.new_layers(0)
        page.wait_for_function("() => document.querySelectorAll('#slices .marks i').length === 2", timeout=WAIT)

        # Next place may be on any slice of any volume; then the export.
        page.click("#next")
        page.wait_for_function("() => document.getElementById('message').textContent.length > 5", timeout=WAIT)
        page.click("#export")
        hand.until("d => d.export === 'done'")
        assert (volumes / "model.bf").exists() and (volumes / "predictions" / "ball-1.proba.tif").exists()
        assert not hand.errors


def test_a_damaged_volume_is_named_on_the_page(browser, volumes):
    path = volumes / "images" / "ball-0.tif"
    path.write_bytes(path.read_bytes()[:5000])
    with serving(volumes) as served:
        hand = Hand(browser.new_page(), served.url)
        assert hand.page.locator("#images button").count() == 1
        assert "ball-0.tif" in hand.page.locator("#problems").text_content()
        assert not hand.errors


def test_a_tablet_paints_with_a_finger(browser, served):
    context = browser.new_context(viewport={"width": 820, "height": 1180}, has_touch=True, device_scale_factor=2)
    hand = Hand(context.new_page(), served.url)
    page = hand.page
    fits = page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    assert fits
    page.touchscreen.tap(*hand.at(0.5, 0.5))
    hand.until("d => d.revision === '1' && d.waiting === '0'")
    page.locator("#labels .pick").nth(1).tap()
    page.touchscreen.tap(*hand.at(0.08, 0.08))
    hand.until("d => d.revision === '2' && d.waiting === '0'")
    hand.new_layers(0)
    hand.picture("tablet")
    assert not hand.errors


def test_a_page_without_the_token_says_so(browser, served):
    page = browser.new_page()
    page.set_default_timeout(WAIT)
    page.goto(f"http://127.0.0.1:{served.port}/")
    page.wait_for_selector("#message.bad")
    assert "token" in page.locator("#message").text_content()
