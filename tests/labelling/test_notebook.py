"""``bf.label``: the page in a frame, scribbles and a model as Python has them."""

import gc
import http.server
import re
import threading

import numpy as np
import pytest

import backfield as bf
from backfield.labelling import learn
from tests.labelling.conftest import DISC, GROUND, SHAPE, ball, picture, write_folder

httpx = pytest.importorskip("httpx", reason="needs the extra test")
pytest.importorskip("starlette", reason="needs the extra label")
pytest.importorskip("uvicorn", reason="needs the extra label")


def paint(session, image, stroke):
    """Do a stroke as the page does."""
    base, token = session.url.split("/?token=")
    answer = httpx.post(f"{base}/api/images/{image}/strokes", json=stroke, headers={"X-Token": token}, timeout=120)
    assert answer.status_code == 200, answer.text


def test_arrays_are_painted_and_learned_from(tmp_path):
    images = [picture(k)[0] for k in range(2)]
    images[1] = images[1] / 255.0  # floats in [0, 1] are images, too
    session = bf.label(images, ["ground", "disc"])
    try:
        with pytest.raises(bf.InputError, match="two labels"):
            _ = session.model
        paint(session, 0, GROUND)
        paint(session, 0, DISC)
        first, second = session.scribbles
        assert first.shape == SHAPE and set(np.unique(first)) == {-1, 0, 1} and (second == -1).all()
        crf = session.model
        assert isinstance(crf, bf.GridCRF) and session.model is crf  # nothing was painted since
        paint(session, 1, DISC)
        assert session.model is not crf
    finally:
        session.close()
    folder = session.folder
    with pytest.raises(httpx.TransportError):
        httpx.get(session.url)
    assert (session.scribbles[0] == first).all() and (session.model.weights_ == learn(folder).weights_).all()
    del session
    gc.collect()
    assert not folder.exists()


def test_a_folder_stays(tmp_path):
    session = bf.label(write_folder(tmp_path / "data"), ["ground", "disc"])
    paint(session, 2, DISC)
    session.close()
    del session
    gc.collect()
    assert (tmp_path / "data" / "masks" / "disc-2.png").exists()


def test_volumes_have_scribbles_of_their_shape(tmp_path):
    pytest.importorskip("tifffile", reason="needs the extra volumes")
    volume = ball(0)[0].astype(np.int16) - 100
    session = bf.label([volume], ["ground", "disc"], folder=tmp_path / "kept")
    try:
        paint(session, 4, DISC)
        (found,) = session.scribbles
        assert found.shape == volume.shape and (found[4] == 1).any() and (np.delete(found, 4, axis=0) == -1).all()
    finally:
        session.close()
    with pytest.raises(bf.InputError, match="holds images already"):
        bf.label([volume], folder=tmp_path / "kept")


@pytest.mark.parametrize("images", [[], [np.zeros(3)], [np.zeros((2, 2, 2, 2))], [np.full((4, 4), 7.0)]])
def test_odd_images_are_refused(images):
    with pytest.raises(bf.InputError):
        bf.label(images)


def test_a_folder_that_was_refused_is_free_again(tmp_path):
    folder = write_folder(tmp_path / "data")
    with pytest.raises(bf.InputError, match="two labels"):
        bf.label(folder, ["one"])
    with pytest.raises(bf.InputError):
        bf.label(folder, model=tmp_path / "nowhere.bf")
    bf.label(folder).close()


def test_the_frame_shows_the_page_on_this_machine_only(tmp_path):
    session = bf.label(write_folder(tmp_path / "data"))
    try:
        policy = httpx.get(session.url, timeout=120).headers["content-security-policy"]
        assert policy.endswith("frame-ancestors http://127.0.0.1:* http://localhost:*")
        assert re.search(r'<iframe src="http://127\.0\.0\.1:\d+/\?token=[^"]+"', session._repr_html_())
    finally:
        session.close()


def test_a_notebook_shows_the_page(tmp_path):
    """A page of another port of this machine, as Jupyter's is, in a real browser."""
    from tests.labelling.test_browser import CHROMIUM, WAIT, sync

    session = bf.label(write_folder(tmp_path / "data"))

    class Notebook(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<!doctype html><link rel=icon href=data:,><p>cell</p>{session._repr_html_()}".encode())

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Notebook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync.sync_playwright() as play:
            browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            for host in ("127.0.0.1", "localhost"):
                page = browser.new_page(viewport={"width": 1100, "height": 900})
                page.goto(f"http://{host}:{server.server_port}/")
                frame = page.frame_locator("iframe")
                frame.locator("html[data-ready=yes]").wait_for(state="attached", timeout=WAIT)
                box = frame.locator("#canvas").bounding_box()
                before = (session.scribbles[0] >= 0).sum()
                page.mouse.move(
                    box["x"] + box["width"] * (0.4 if host == "localhost" else 0.6), box["y"] + box["height"] / 2
                )
                page.mouse.down()
                page.mouse.up()
                frame.locator("html[data-revision][data-waiting='0']").wait_for(state="attached", timeout=WAIT)
                assert (session.scribbles[0] >= 0).sum() > before
                page.close()
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
        session.close()
