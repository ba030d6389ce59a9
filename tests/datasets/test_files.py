import numpy as np
import pytest

from backfield.datasets import _files, backgrounds, bsds, conll, data_dir, horses, letters, read_image, read_mask
from backfield.errors import InputError

Image = pytest.importorskip("PIL.Image")


def test_the_argument_comes_first(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setenv("BACKFIELD_DATA", str(tmp_path / "b"))
    assert data_dir(tmp_path / "a") == tmp_path / "a"
    assert data_dir() == tmp_path / "b"
    monkeypatch.setattr(_files, "_BESIDE", tmp_path / "a")
    monkeypatch.delenv("BACKFIELD_DATA")
    assert data_dir() == tmp_path / "a"


def test_missing_folders_are_named(tmp_path, monkeypatch):
    nowhere = str(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"nowhere \(from --data\) does not exist.*docs/data.md"):
        data_dir(nowhere)
    monkeypatch.setenv("BACKFIELD_DATA", nowhere)
    with pytest.raises(InputError, match=r"nowhere \(from BACKFIELD_DATA\)"):
        data_dir()
    monkeypatch.delenv("BACKFIELD_DATA")
    monkeypatch.setattr(_files, "_BESIDE", tmp_path / "beside")
    with pytest.raises(InputError, match=r"no --data, no BACKFIELD_DATA and no .*beside; docs/data.md"):
        data_dir()


@pytest.mark.parametrize("loader", [bsds, horses, backgrounds, letters, conll])
def test_each_loader_says_what_is_missing(loader, tmp_path):
    with pytest.raises(InputError) as caught:
        loader.load(tmp_path)
    text = str(caught.value)
    assert "are missing" in text and str(tmp_path) in text and loader.URL in text and "\n" not in text


def test_images_and_masks(tmp_path):
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    found = read_image(tmp_path / "grey.png")
    assert found.shape == (3, 4, 3) and np.array_equal(found[..., 1], grey)
    assert np.array_equal(read_mask(tmp_path / "grey.png"), grey)
    Image.fromarray(found).save(tmp_path / "colour.png")
    with pytest.raises(InputError, match="one number per pixel"):
        read_mask(tmp_path / "colour.png")
    with pytest.raises(InputError, match="no such file"):
        read_image(tmp_path / "none.png")
    noise = np.random.default_rng(0).integers(256, size=(50, 50), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    for broken in (b"", b"not an image", (tmp_path / "noise.png").read_bytes()[:1000]):
        (tmp_path / "broken.png").write_bytes(broken)
        with pytest.raises(InputError, match=r"broken.png: cannot be read as an image"):
            read_image(tmp_path / "broken.png")
