"""Plain HTTP: what the page asks for, and what nobody may ask for."""

import contextlib
import json
import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest

import backfield as bf
from tests.labelling.conftest import DISC, GROUND, SHAPE

httpx = pytest.importorskip("httpx", reason="needs the extra test")


@pytest.fixture
def client(served):
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", headers={"X-Token": served.token}, timeout=120) as made:
        yield made


def planes(answer):
    assert answer.status_code == 200, answer.text
    (length,) = struct.unpack_from("<I", answer.content)
    header = json.loads(answer.content[4 : 4 + length])
    x, y, width, height = header["box"]
    flat = np.frombuffer(answer.content, np.uint8, offset=4 + length)
    return header, flat.reshape(header["planes"], height, width)


def layers(client, image, after=0, **known):
    return planes(client.get(f"/api/images/{image}/layers", params={"after": after, **known}))


def new_layers(client, image, after=0, **known):
    """Ask until there are layers, as the page does: the server's patience may end while kernels compile."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        header, parts = layers(client, image, after, **known)
        if header["planes"]:
            return header, parts
    raise AssertionError(f"no layers of image {image} after version {after}: {header}")


def test_the_page_and_its_files(client):
    from backfield.labelling.server import PAGE

    assert {path.name for path in (Path(bf.__file__).parent / "labelling" / "page").iterdir()} == set(PAGE)
    page = client.get("/")
    assert page.status_code == 200 and "text/html" in page.headers["content-type"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    for name in [each for each in PAGE if each != "index.html"]:
        answer = client.get(f"/page/{name}")
        assert answer.status_code == 200 and "http" not in answer.text.replace("http://127", "")
    assert client.get("/page/../server.py").status_code == 404


def test_painting_gives_layers_and_an_undo_takes_them_away(client, served):
    state = client.get("/api/state").json()
    assert [label["name"] for label in state["labels"]] == ["ground", "disc"] and len(state["images"]) == 3
    header, (labels,) = planes(client.post("/api/images/0/strokes", json=GROUND))
    assert header["revision"] == 1 and (labels == 0).any()
    header, _ = planes(client.post("/api/images/0/strokes", json={**DISC, "view": [0, 0, 90, 72]}))
    assert header["revision"] == 2
    found, parts = new_layers(client, 0, seen=2)
    assert parts.shape == (5, *SHAPE) and set(np.unique(parts[0])) == {0, 1}
    _, (kept,) = planes(client.get("/api/images/0/scribbles"))
    assert (parts[0][kept != 255] == kept[kept != 255]).all()  # scribbles are observed
    planes(client.post("/api/images/0/undo", json={}))
    later, parts = new_layers(client, 0, after=found["version"], seen=3)
    while not (parts[0] == 255).all():  # until they are gone: one label is nothing to learn from
        later, parts = new_layers(client, 0, after=later["version"], seen=3)
    assert client.post("/api/images/0/redo", json=None).status_code == 200
    assert client.post("/api/images/0/redo", json=None).status_code == 204


def test_a_second_window_hears_of_strokes(client, monkeypatch):
    """Without waiting for the end of the server's patience, which is longer than that of the client here."""
    monkeypatch.setattr("backfield.labelling.server.PATIENCE", 1000.0)
    planes(client.post("/api/images/0/strokes", json=GROUND))
    header, parts = layers(client, 0, after=0, seen=0)
    assert header["revision"] == 1


def test_a_second_window_hears_of_labels_and_the_export(client, monkeypatch):
    monkeypatch.setattr("backfield.labelling.server.PATIENCE", 1000.0)
    client.post("/api/labels", json={"number": 0, "name": "soil"})
    header, _ = layers(client, 0)
    assert header["label_changes"] == 1 == client.get("/api/state").json()["label_changes"]
    client.post("/api/export")  # fails: nothing is painted
    step = 0
    while header["export"]["stage"] != "failed":
        header, _ = layers(client, 0, named=1, step=step)
        assert header["export"]["step"] > step
        step = header["export"]["step"]
    assert "two labels" in header["export"]["text"]


def test_pictures_and_places(client):
    assert client.get("/api/images/1/pixels").headers["content-type"] == "image/png"
    assert len(client.get("/api/images/1/thumbnail").content) < 100_000
    place = client.get("/api/images/1/next").json()
    assert 0 <= place["image"] < 3 and 0 <= place["x"] < SHAPE[1] and 0 <= place["y"] < SHAPE[0]


def test_labels_are_added_and_changed(client):
    names = [label["name"] for label in client.post("/api/labels", json={"name": "rim"}).json()["labels"]]
    assert names == ["ground", "disc", "rim"]
    state = client.post("/api/labels", json={"number": 0, "name": "soil", "colour": "#abcdef"}).json()
    assert state["labels"][0] == {"name": "soil", "colour": "#abcdef"}
    for bad in ({"name": "rim"}, {"number": 9, "name": "x"}, {"colour": "red"}, {"evil": 1}, [], None, "x"):
        assert client.post("/api/labels", json=bad).status_code == 400


@pytest.mark.parametrize("token", [None, "", "wrong", "é"])
def test_without_the_token_nothing_is_said(served, token):
    headers = {} if token is None else {"X-Token": token.encode()}
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", headers=headers, timeout=120) as client:
        for method, path in (("GET", "/api/state"), ("GET", "/api/images/0/pixels"), ("POST", "/api/images/0/strokes")):
            answer = client.request(method, path)
            assert answer.status_code == 401 and "ground" not in answer.text
        assert client.get("/api/state", params={"token": "wrong"}).status_code == 401
        assert (client.get("/api/state", params={"token": served.token}).status_code == 200) == (not token)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": "127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_are_refused(client, served, headers):
    assert client.get("/api/state", headers=headers).status_code == 403
    assert client.post("/api/images/0/strokes", json=GROUND, headers=headers).status_code == 403
    assert served.session.canvas(0).revision == 0


def test_the_page_of_this_server_is_welcome(client, served):
    for name in ("127.0.0.1", "localhost"):
        headers = {
            "Host": f"{name}:{served.port}",
            "Origin": f"http://{name}:{served.port}",
            "Sec-Fetch-Site": "same-origin",
        }
        assert client.get("/api/state", headers=headers).status_code == 200


def test_it_listens_on_this_machine_only(served):
    assert served.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        "/page/..%2f..%2fsession.py",
        "/page/%2e%2e/__init__.py",
        "/../../etc/passwd",
        "/page//etc/passwd",
        "/page/index.html%00",
        "/api/images/..%2f..%2fetc/pixels",
        "/api/images/-1/pixels",
        "/api/images/3/pixels",
        "/api/images/99999999999999999999999999/pixels",
        "/api/images/0/masks",
        "/images/disc-0.png",
    ],
)
def test_paths_that_lead_elsewhere_are_refused(client, path):
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert "root:" not in answer.text and "import" not in answer.text


def test_huge_bodies_are_refused(client, served):
    assert client.post("/api/images/0/strokes", content=b"x" * (2**20 + 1)).status_code == 413

    def chunks():
        for _ in range(40):
            yield b"x" * 100_000

    with contextlib.suppress(httpx.TransportError):  # it may hang up while we talk
        assert client.post("/api/images/0/strokes", content=chunks()).status_code == 413
    assert client.get("/api/state").status_code == 200
    assert served.session.canvas(0).revision == 0


def test_a_thousand_random_requests_change_nothing(client, served):
    """Refused one and all, and the server lives."""
    rng = random.Random(0)
    paths = [
        "/api/state",
        "/api/labels",
        "/page/x",
        "/",
        "/api/images/0/strokes",
        "/api/images/1/undo",
        "/api/images/x/redo",
    ]
    seeds = [json.dumps(GROUND), json.dumps({"name": "x"}), "[" * 5000, '{"points": [[1e999, 1]]}', "\x00\xff"]
    for _ in range(1000):
        text = list(rng.choice(seeds))
        for _ in range(rng.randint(1, 6)):
            text[rng.randrange(len(text))] = chr(rng.choice([0, 34, 44, 45, 57, 91, 123, 125, 233, 8364]))
        path = rng.choice(paths) + rng.choice(["", "?after=1", "/", "%00", "?token=x", f"/{rng.random()}"])
        token = {"X-Token": "wrong"} if rng.random() < 0.3 else {}
        body = "".join(text).encode("utf-8", "replace")
        answer = client.request(rng.choice(["GET", "POST", "PUT", "DELETE", "HEAD"]), path, content=body, headers=token)
        assert answer.status_code < 500, (path, body[:80], answer.text)
    assert client.get("/api/state").status_code == 200
    assert planes(client.post("/api/images/2/strokes", json=DISC))[0]["revision"] >= 1


def test_odd_numbers_are_refused(client):
    for query in ("after=x", "view=1,2", "view=a,b,c,d", "after=1e99", "seen=nan"):
        assert client.get(f"/api/images/0/layers?{query}").status_code == 400


def test_an_export_writes_what_predict_writes(client, served, tmp_path):
    from backfield.cli.app import run
    from backfield.labelling import learn
    from tests.labelling.conftest import Image, picture

    folder = served.session.folder
    assert client.post("/api/export").status_code == 202
    state = wait_for_export(client)
    assert state["stage"] == "failed" and "two labels" in state["text"]
    for stroke in (GROUND, DISC):
        client.post("/api/images/0/strokes", json=stroke)
    client.post("/api/labels", json={"name": "rim"})  # which nobody paints
    client.post("/api/export")
    state = wait_for_export(client)
    assert state["stage"] == "done" and "backfield predict" in state["lines"], state
    assert run(["predict", str(folder / "model.bf"), str(folder), "-o", str(tmp_path / "out"), "--proba"]) == 0
    for k in range(3):
        mine, theirs = (np.asarray(Image.open(d / f"disc-{k}.png")) for d in (folder / "predictions", tmp_path / "out"))
        assert (mine == theirs).mean() > 0.999
        p, q = (np.load(d / f"disc-{k}.npy") for d in (folder / "predictions", tmp_path / "out"))
        assert p.shape == q.shape and np.abs(p - q).max() < 1e-4
        assert (mine == picture(k)[1]).mean() > 0.9 and p.shape[2] == 3
    learn(folder).save(tmp_path / "again.bf")
    assert (bf.load(tmp_path / "again.bf").weights_ == bf.load(folder / "model.bf").weights_).all()


def wait_for_export(client):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        state = client.get("/api/state").json()["export"]
        if state["stage"] != "running":
            return state
        time.sleep(0.05)
    raise AssertionError("the export does not end")
