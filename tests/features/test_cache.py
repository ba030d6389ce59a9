import os

import numpy as np
import pytest

from backfield.errors import InputError
from backfield.features import EdgeFeatures, FeatureCache, PixelFeatures


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(256, size=(8, 9, 3), dtype=np.uint8)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_hit_does_not_compute(tmp_path, image):
    cache, calls = FeatureCache(tmp_path / "new"), []

    def compute():
        calls.append(1)
        return (np.arange(6.0).reshape(2, 3),)

    for _ in range(2):
        (found,) = cache.get(image, "recipe", 1, compute)
        assert np.array_equal(found, np.arange(6.0).reshape(2, 3)) and isinstance(found, np.memmap)
    assert len(calls) == 1
    cache.get(image, "another recipe", 1, compute)
    cache.get(image[:, ::-1], "recipe", 1, compute)
    cache.get(image.reshape(9, 8, 3), "recipe", 1, compute)  # the same bytes in another shape
    assert len(calls) == 4
    assert not isinstance(FeatureCache(tmp_path / "new", mmap=False).get(image, "recipe", 1, compute)[0], np.memmap)
    assert len(calls) == 4


def test_pixel_features_from_disk_are_the_same(tmp_path, image, monkeypatch):
    expected = PixelFeatures().transform_one(image)
    features = PixelFeatures(cache_dir=str(tmp_path))
    assert np.array_equal(features.transform_one(image), expected)
    assert len(files(tmp_path)) == 1
    monkeypatch.setattr(PixelFeatures, "_compute", None)  # from here on, only hits
    assert np.array_equal(features.transform([image])[0], expected)
    with pytest.raises(TypeError):
        PixelFeatures(scale=1.0, cache_dir=str(tmp_path)).transform_one(image)
    with pytest.raises(TypeError):
        features.transform_one(image + np.uint8(1))


def test_edge_features_from_disk_depend_on_the_thresholds(tmp_path, image):
    plain, kept = EdgeFeatures().fit([image]), EdgeFeatures(cache_dir=str(tmp_path)).fit([image])
    for _ in range(2):
        for found, expected in zip(kept.transform_one(image), plain.transform_one(image), strict=True):
            assert np.array_equal(found, expected)
    assert len(files(tmp_path)) == 2
    kept.fit([image // 2]).transform_one(image)
    assert len(files(tmp_path)) == 4


def test_a_damaged_file_is_made_anew(tmp_path, image):
    features = PixelFeatures(cache_dir=str(tmp_path))
    expected = np.array(features.transform_one(image))
    (path,) = tmp_path.iterdir()
    for broken in (b"", path.read_bytes()[:200], b"rubbish"):
        path.write_bytes(broken)
        assert np.array_equal(features.transform_one(image), expected)
    assert files(tmp_path) == [path.name]  # nothing temporary is left


def test_a_failed_write_leaves_nothing(tmp_path, image, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(InputError, match="No space left on device"):
        PixelFeatures(cache_dir=str(tmp_path)).transform_one(image)
    assert files(tmp_path) == []


def test_a_cache_that_is_a_file(tmp_path, image):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write the feature cache"):
        PixelFeatures(cache_dir=os.fspath(tmp_path / "file")).transform_one(image)
