import numpy as np
import pytest

from backfield.datasets import backgrounds, bsds, horses
from backfield.errors import InputError
from tests.datasets.real import real_data

Image = pytest.importorskip("PIL.Image")


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(array, dtype=np.uint8)).save(path)


@pytest.fixture
def stable(tmp_path):
    """Five horses, one of them grey, in both folders."""
    rng = np.random.default_rng(0)
    for number in range(5):
        shape = (6 + number, 9) if number == 3 else (6 + number, 9, 3)
        folder = tmp_path / "weizmann_horses" / ("training" if number % 2 else "test")
        save(folder / "images" / f"image-{number}.png", rng.integers(256, size=shape))
        save(folder / "masks" / f"mask-{number}.png", 255 * rng.integers(2, size=(6 + number, 9)))
    return tmp_path


def test_horses_from_a_folder(stable):
    data = horses.load(stable, n_train=3)
    assert data.names == ["test/image-0", "training/image-1", "test/image-2", "training/image-3", "test/image-4"]
    for number, (image, mask) in enumerate(zip(data.images, data.masks, strict=True)):
        assert image.shape == (6 + number, 9, 3) and image.dtype == np.uint8
        assert mask.shape == (6 + number, 9) and set(np.unique(mask)) == {0, 1}
    assert np.array_equal(data.images[3][..., 0], data.images[3][..., 2])
    assert sorted([*data.train, *data.test]) == [0, 1, 2, 3, 4] and len(data.train) == 3
    assert np.array_equal(horses.load(stable, n_train=3).train, data.train)
    assert any(not np.array_equal(horses.load(stable, n_train=3, seed=s).train, data.train) for s in (1, 2, 3))


def test_bad_horses(stable):
    with pytest.raises(InputError, match="has 5 images, at least 201 are needed"):
        horses.load(stable)
    folder = stable / "weizmann_horses" / "test"
    save(folder / "masks" / "mask-2.png", np.zeros((3, 4)))
    with pytest.raises(InputError, match=r"mask-2.png is 4x3 pixels but .*image-2.png is 9x8"):
        horses.load(stable, n_train=3)
    (folder / "masks" / "mask-2.png").unlink()
    with pytest.raises(InputError, match=r"image-2.png has no mask: there is no .*mask-2.png"):
        horses.load(stable, n_train=3)
    save(folder / "images" / "image-x.png", np.zeros((3, 4)))
    with pytest.raises(InputError, match=r"image-x.png: horses are named"):
        horses.load(stable, n_train=3)


@pytest.fixture
def scenes(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(7):
        regions = rng.integers(8, size=(5, 6))
        regions[0, :2] = 255
        save(tmp_path / "stanford_background" / "images" / f"{number:03}.jpg", rng.integers(256, size=(5, 6, 3)))
        save(tmp_path / "stanford_background" / "regions" / f"{number:03}.png", regions)
    return tmp_path


def test_backgrounds_from_a_folder(scenes):
    data = backgrounds.load(scenes)
    assert len(data.images) == len(data.labels) == 7 and data.names[1] == "001"
    assert all(labels[0, :2].tolist() == [-1, -1] and labels[1:].min() >= 0 for labels in data.labels)
    assert sorted(np.bincount(data.folds)) == [1, 1, 1, 2, 2]
    few = backgrounds.load(scenes, n_images=3)
    assert len(few.images) == 3 and np.array_equal(few.folds, data.folds[:3])
    assert not np.array_equal(backgrounds.load(scenes, seed=1).folds, data.folds)


def test_backgrounds_as_the_authors_give_them(scenes):
    folder = scenes / "stanford_background"
    expected = backgrounds.load(scenes).labels[2]
    (folder / "labels").mkdir()
    np.savetxt(folder / "labels" / "002.regions.txt", np.where(expected < 0, -3, expected), fmt="%d")
    (folder / "regions" / "002.png").unlink()
    assert np.array_equal(backgrounds.load(scenes).labels[2], expected)
    (folder / "labels" / "002.regions.txt").write_text("1 2 x\n")
    with pytest.raises(InputError, match=r"002.regions.txt: is not a matrix"):
        backgrounds.load(scenes)


def test_bad_backgrounds(scenes):
    folder = scenes / "stanford_background"
    save(folder / "regions" / "002.png", np.full((5, 6), 9))
    with pytest.raises(InputError, match=r"002.png: classes are 0 .. 7 or 255 \(unknown\), received 9"):
        backgrounds.load(scenes)
    (folder / "regions" / "002.png").unlink()
    with pytest.raises(InputError, match=r"002.jpg has no labels"):
        backgrounds.load(scenes)


@pytest.mark.parametrize("inside", [".", "images/train"])
def test_bsds_from_a_folder(tmp_path, inside):
    ramp = np.repeat(np.linspace(0, 255, 48)[None], 32, axis=0)
    save(tmp_path / "bsds300" / inside / "a.jpg", ramp)
    save(tmp_path / "bsds300" / inside / "b.jpg", ramp.T)  # portrait
    data = bsds.load(tmp_path, n_images=2, n_train=1)
    assert data.names == ["a", "b"] and data.train.tolist() == [0] and data.test.tolist() == [1]
    assert all(mask.shape == (200, 300) and abs(mask.mean() - 0.5) < 0.02 for mask in data.masks)
    assert data.masks[0][:, :140].max() == 0 and data.masks[0][:, 160:].min() == 1
    with pytest.raises(InputError, match="has 2 images, at least 132"):
        bsds.load(tmp_path)


def test_noise_of_d13():
    x = np.repeat([[0], [1]], 50_000, axis=1)
    y = bsds.noisy(x, 1.25, 0)
    assert y.dtype == np.float32 and y.min() >= 0 and y.max() <= 1
    np.testing.assert_allclose(y.mean(axis=1), [1 / 2.25, 1 - 1 / 2.25], atol=0.01)  # E t^n = 1 / (n + 1)
    assert np.array_equal(bsds.noisy(x, 1.25, 0), y) and not np.array_equal(bsds.noisy(x, 1.25, (0, 1)), y)
    with pytest.raises(InputError, match="0 and 1"):
        bsds.noisy([0, 2], 1.5, 0)
    with pytest.raises(InputError, match="noise level"):
        bsds.noisy([0, 1], 0, 0)


def test_the_real_horses():
    data = horses.load(real_data("weizmann_horses"))
    assert len(data.images) == 328 and len(set(data.names)) == 328
    assert len(data.train) == 200 and len(data.test) == 128
    assert all(image.shape[:2] == mask.shape for image, mask in zip(data.images, data.masks, strict=True))
    grey = data.images[data.names.index("training/image-317")]
    assert grey.shape == (98, 103, 3) and (grey == grey[..., :1]).all()


def test_the_real_backgrounds():
    data = backgrounds.load(real_data("stanford_background"), n_images=20)
    assert len(data.images) == 20 and all(image.dtype == np.uint8 for image in data.images)
    assert {int(k) for labels in data.labels for k in np.unique(labels)} <= set(range(-1, 8))


def test_the_real_berkeley_images():
    data = bsds.load(real_data("bsds300"))
    assert len(data.masks) == 132 and len(data.train) == 32 and len(data.test) == 100
    assert data.names == sorted(data.names)
    for n, paper in ((1.25, 0.424), (5, 0.129)):  # without a field the best guess is y > 1/2
        wrong = [(bsds.noisy(data.masks[i], n, (0, int(i))) > 0.5) != data.masks[i] for i in data.test[::4]]
        assert abs(np.mean(wrong) - paper) < 0.01
