import pickle
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from backfield.data.checks import check_classes, check_labels
from backfield.data.format import Preprocessing
from backfield.data.formats import read_npz, write_column_file, write_mask, write_npz
from backfield.datasets import read_image
from backfield.errors import InputError
from backfield.structures.reading import choose_preprocessing, read_data


def image_folder(path, masks=((0, 1), (1, 255)), shape=(4, 5), ending=".png"):
    """Write one image per pair of classes: the left half of its mask has the first, the right half the second."""
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (path / name).mkdir(parents=True, exist_ok=True)
    for k, (left, right) in enumerate(masks):
        mask = np.where(np.arange(shape[1]) < shape[1] // 2, left, right) * np.ones((shape[0], 1))
        pixels = np.clip(60 + 100 * (mask[..., None] == 1) + rng.integers(0, 60, (*shape, 3)), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(path / "images" / f"{k}{ending}")
        Image.fromarray(mask.astype(np.uint8)).save(path / "masks" / f"{k}.png")
    return path


def test_images_and_masks_are_paired_by_stem(tmp_path):
    data = read_data(image_folder(tmp_path / "a", ending=".jpg"))
    assert (data.format.name, data.structure, data.names) == ("images", "grid", ["0", "1"])
    assert data.inputs[0].shape == (4, 5, 3) and data.inputs[0].dtype == np.uint8
    np.testing.assert_array_equal(data.labels[1][0], [1, 1, -1, -1, -1])  # 255 = don't care


def test_masks_are_read_as_numbers_and_written_back(tmp_path):
    mask = np.array([[0, 3], [1, 2]])
    write_mask(tmp_path / "m.png", mask)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "m.png")), mask)
    picture = Image.open(tmp_path / "m.png")
    assert picture.mode == "P"
    colours = np.asarray(picture.convert("RGB")).reshape(-1, 3).tolist()
    assert colours == [[0, 0, 0], [128, 128, 0], [128, 0, 0], [0, 128, 0]]
    write_mask(tmp_path / "m.png", mask, colours=False)
    assert Image.open(tmp_path / "m.png").mode == "L"
    write_mask(tmp_path / "m.png", mask + 300)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "m.png")), mask + 300)
    with pytest.raises(InputError, match="classes"):
        write_mask(tmp_path / "m.png", mask - 1)


def test_images_alone_need_no_folder_of_their_own(tmp_path):
    folder = image_folder(tmp_path / "a")
    for path in (folder, folder / "images"):
        data = read_data(path, with_labels=False)
        assert data.names == ["0", "1"] and data.labels is None


def broken_folder(tmp_path, what):
    folder = image_folder(tmp_path / "a")
    if what == "empty":
        for path in folder.glob("images/*"):
            path.unlink()
    elif what == "no folder":
        (folder / "masks").rename(folder / "labels")
    elif what == "no mask":
        (folder / "masks" / "1.png").unlink()
    elif what == "no image":
        (folder / "images" / "1.png").unlink()
    elif what == "sizes":
        write_mask(folder / "masks" / "1.png", np.zeros((4, 6), int))
    elif what == "colours":
        Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(folder / "masks" / "1.png")
    elif what == "unreadable":
        (folder / "images" / "1.png").write_bytes(b"no image")
    elif what == "cut short":
        data = (folder / "images" / "1.png").read_bytes()
        (folder / "images" / "1.png").write_bytes(data[: len(data) // 2])
    elif what == "two of a stem":
        (folder / "images" / "1.jpg").write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("empty", r"images is empty"),
        ("no folder", r"no folder masks/"),
        ("no mask", r"images/1.png has no mask"),
        ("no image", r"masks/1.png has no image"),
        ("sizes", r"masks/1.png is 6x4 pixels but .*images/1.png is 5x4"),
        ("colours", r"masks/1.png: a mask has one number per pixel"),
        ("unreadable", r"images/1.png: cannot be read as an image"),
        ("cut short", r"images/1.png: cannot be read as an image"),
        ("two of a stem", r"same stem"),
    ],
)
def test_broken_folders(tmp_path, what, message):
    with pytest.raises(InputError, match=message):
        read_data(broken_folder(tmp_path, what))


def each(key, *arrays):
    """One array per example."""
    return {f"{key}_{k}": array for k, array in enumerate(arrays)}


def test_npz_of_images_stacked_or_ragged(tmp_path):
    write_npz(tmp_path / "a.npz", {"images": np.zeros((2, 3, 4)), "masks": np.array([[[0, 1, 255, 1]] * 3] * 2, np.uint8)})
    data = read_data(tmp_path / "a.npz")
    assert [x.shape for x in data.inputs] == [(3, 4, 1)] * 2 and data.labels[0][0].tolist() == [0, 1, -1, 1]
    images = [np.ones((3, 4, 2), np.float32), np.ones((2, 5, 2), np.float32)]
    edges = {"horizontal": [np.ones((3, 3, 1)), np.ones((2, 4, 1))], "vertical": [np.ones((2, 4, 1)), np.ones((1, 5, 1))]}
    write_npz(tmp_path / "b.npz", {"images": images, "masks": [np.zeros((3, 4), int), np.ones((2, 5), int)], **edges})
    data = read_data(tmp_path / "b.npz")
    assert [x.shape for x in data.inputs] == [(3, 4, 2), (2, 5, 2)] and data.edges[1][1].shape == (1, 5, 1)


@pytest.mark.parametrize("form", ["lengths", "ptr", "one per chain", "stacked"])
def test_npz_of_chains(tmp_path, form):
    X, y = np.arange(12.0).reshape(6, 2), np.array(["a", "b", "a", "b", "a", "b"])
    halves = each("X", X[:2], X[2:]) | each("y", y[:2], y[2:])
    content = {
        "lengths": {"X": X, "y": y, "lengths": [2, 4]},
        "ptr": {"X": X, "y": y, "ptr": [0, 2, 6]},
        "one per chain": halves,
        "stacked": {"X": X.reshape(2, 3, 2), "y": y.reshape(2, 3)},
    }[form]
    np.savez(tmp_path / "a.npz", **content)
    arrays = read_npz(tmp_path / "a.npz")
    assert arrays.kind == "chain"
    np.testing.assert_array_equal(np.concatenate(arrays.inputs), X)
    assert np.concatenate(arrays.labels).tolist() == y.tolist()
    assert [len(x) for x in arrays.inputs] == ([3, 3] if form == "stacked" else [2, 4])


NAN = np.where(np.arange(12).reshape(3, 4) == 5, np.nan, 1.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"pictures": np.zeros(3)}, "needs the key 'images'.*it has pictures"),
        ({"images": np.zeros((1, 3, 4))}, "no key 'masks'"),
        ({"images": np.zeros((0, 3, 4)), "masks": np.zeros((0, 3, 4), int)}, "no examples"),
        ({"images": NAN[None], "masks": np.zeros((1, 3, 4), int)}, r"images\[0\] holds nan at \(1, 1\)"),
        ({"images": np.zeros((1, 3, 4)), "masks": np.zeros((1, 3, 5), int)}, "sizes differ in example 0"),
        ({"images": np.zeros((1, 3, 4)), "masks": np.zeros((2, 3, 4), int)}, "counts must agree"),
        ({"images": np.zeros((1, 3, 4)), "masks": np.zeros((1, 3, 4))}, r"masks\[0\] must hold .* of shape \(H, W\)"),
        (
            each("images", np.zeros((3, 4, 2)), np.zeros((2, 4, 3))) | each("masks", NAN > 0, NAN[:2] > 0),
            r"images\[1\] has 3 features, images\[0\] has 2",
        ),
        (
            each("images", np.zeros((3, 4)), np.zeros((2, 4, 3))) | each("masks", NAN > 0, NAN[:2] > 0),
            "features or none",
        ),
        (
            {"images": np.zeros((1, 3, 4)), "masks": np.zeros((1, 3, 4), int), "horizontal": np.zeros((1, 3, 3, 1))},
            "vertical",
        ),
        (each("X", np.zeros((3, 2)), np.zeros((2, 1))) | each("y", np.zeros(3, int), np.zeros(2, int)), "1 features"),
        ({"X": np.zeros((5, 2)), "y": np.zeros(5, int), "lengths": [2, 4]}, "cut 6 rows"),
        ({"X": np.zeros((5, 2)), "y": np.zeros(4, int), "lengths": [2, 3]}, "y has shape"),
        ({"X": np.zeros((5, 2)), "y": np.zeros(5, int), "lengths": [0.5]}, "integers"),
        ({"X": np.zeros((2, 3, 2))}, "no key 'y'"),
        ({"X": np.zeros((2, 3, 2))} | each("y", np.zeros(3, int), np.array(["a", "b", "c"])), "strings in others"),
        ({"images_0": np.zeros((3, 4)), "images_2": np.zeros((3, 4))}, "it needs images, or images_0 .. images_1"),
        ({"X_0": np.zeros((3, 4)), "lengths": np.array([3])}, "one array per chain already"),
        ({"X": np.zeros((2, 3, 2)), "X_0": np.zeros((3, 2))}, "it needs X, or X_0"),
    ],
)
def test_broken_npz(tmp_path, content, message):
    np.savez(tmp_path / "a.npz", **content)
    with pytest.raises(InputError, match=message):
        read_data(tmp_path / "a.npz")


def test_reading_an_npz_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("code was run",))

    np.savez(tmp_path / "a.npz", images=np.array([Evil(), Evil()]))
    with pytest.raises(InputError, match=r"images is an array of Python objects.*write_npz"):
        read_npz(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", images=np.array([np.zeros((2, 3)), np.zeros((3, 3))], dtype=object))
    with pytest.raises(InputError, match=r"images is an array of Python objects.*images_0, images_1"):
        read_npz(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(pickle.dumps([1]))
    with pytest.raises(InputError, match="cannot be read"):
        read_npz(tmp_path / "b.npz")


def npz_that_declares(path, shape, n_bytes):
    """Write an array whose header says ``shape`` and that unpacks to ``n_bytes`` zeros."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("images.npy", "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        file.write(bytes(n_bytes))


@pytest.mark.parametrize("shape", [(2**40,), (2**62, 2**62), (-1, 5), (3,)])
def test_an_npz_whose_shape_is_not_that_of_its_data(tmp_path, shape):
    npz_that_declares(tmp_path / "a.npz", shape, 1000)
    with pytest.raises(InputError, match=r"cannot be read as an \.npz file of arrays"):
        read_npz(tmp_path / "a.npz", with_labels=False)


def test_sizes_that_an_npz_declares_are_limited(tmp_path, monkeypatch):
    npz_that_declares(tmp_path / "a.npz", (1, 1000, 1000), 10**6)
    monkeypatch.setenv("BACKFIELD_MAX_BYTES", "500000")
    with pytest.raises(InputError, match="declares 1000128 bytes, more than the limit of 500000; set BACKFIELD_MAX_BYTES"):
        read_npz(tmp_path / "a.npz", with_labels=False)
    np.savez(tmp_path / "plain.npz", images=np.zeros((1, 1000, 1000), np.uint8))  # the bytes are there: no bomb
    assert read_npz(tmp_path / "plain.npz", with_labels=False).inputs[0].shape == (1000, 1000, 1)
    monkeypatch.setenv("BACKFIELD_MAX_BYTES", "2000000")
    assert read_npz(tmp_path / "a.npz", with_labels=False).inputs[0].shape == (1000, 1000, 1)
    monkeypatch.setenv("BACKFIELD_MAX_BYTES", "many")
    with pytest.raises(InputError, match="BACKFIELD_MAX_BYTES must be an integer"):
        read_npz(tmp_path / "a.npz")


def png_that_declares(path, width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(999))) + chunk(b"IEND", b""))


def test_pixels_that_a_png_declares_are_limited(tmp_path, monkeypatch):
    png_that_declares(tmp_path / "a.png", 9000, 9000)
    with pytest.raises(InputError, match="declares more pixels than its data hold"):
        read_image(tmp_path / "a.png")
    png_that_declares(tmp_path / "b.png", 20000, 20000)
    with pytest.raises(InputError, match="declares more pixels than pillow reads"):
        read_image(tmp_path / "b.png")
    Image.fromarray(np.zeros((100, 100), np.uint8)).save(tmp_path / "c.png")
    monkeypatch.setenv("BACKFIELD_MAX_BYTES", "30000")
    with pytest.raises(InputError, match="declares 40000 bytes"):
        read_image(tmp_path / "c.png")


def test_column_files(tmp_path):
    path = tmp_path / "a.txt"
    write_column_file(path, [[("das", "ART", "O"), ("Öl", "NN", "B")], [("ja", "ITJ", "O")]])
    data = read_data(path)
    assert data.inputs == [[("das", "ART"), ("Öl", "NN")], [("ja", "ITJ")]]
    assert [each.tolist() for each in data.labels] == [["O", "B"], ["O"]]
    without = read_data(path, with_labels=False, n_columns=3)  # of a model whose features are all three columns
    assert without.labels is None and without.inputs[1] == [("ja", "ITJ", "O")]
    with pytest.raises(InputError, match="3 columns; 5 columns are needed"):
        read_data(path, n_columns=4)
    path.write_text("a b c\na b\n")
    with pytest.raises(InputError, match=r"line 2: received 2 columns, 3 are needed"):
        read_data(path)
    path.write_text("a\nb\n")
    with pytest.raises(InputError, match="one column"):
        read_data(path)
    path.write_text("\n\n")
    with pytest.raises(InputError, match="no sentences"):
        read_data(path)


def test_other_things_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        read_data(tmp_path / "nothing")
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(InputError, match=r"unknown type of file '\.csv'"):
        read_data(tmp_path / "a.csv")


def test_labels_must_tell_something_apart(tmp_path):
    with pytest.raises(InputError, match="all labels are hidden"):
        check_labels(read_data(image_folder(tmp_path / "hidden", [(255, 255)])))
    zero = read_data(image_folder(tmp_path / "zero", [(0, 255)]))
    with pytest.raises(InputError, match="for masks of 0 and 255 use --positive 255"):
        check_labels(zero)
    check_labels(zero, n_labels=2)
    three = read_data(image_folder(tmp_path / "three", [(0, 1), (2, 1)]))
    with pytest.raises(InputError, match=r"masks/1, row 0, column 0 has the label 2, .* the 2 classes 0 .. 1"):
        check_labels(three, n_labels=2)
    with pytest.raises(InputError, match="seen in training"):
        check_classes(three, np.array([0, 1]))
    with pytest.raises(InputError, match="strings and numbers"):
        check_classes(three, np.array(["a", "b"]))


def test_preprocessing_comes_back_from_json(tmp_path):
    data = read_data(image_folder(tmp_path / "a", shape=(6, 7)))
    made = choose_preprocessing(data, "l13", "difference,sobel")
    again = Preprocessing.from_json(made.as_json())
    assert again == made
    one, two = made(data)[0], again(data)[0]
    assert one.features.shape == (6, 7, 42) and one.horizontal.shape == (6, 6, 20)
    np.testing.assert_array_equal(one.vertical, two.vertical)
    assert choose_preprocessing(data)(data)[0].max() <= 1.0
    with pytest.raises(InputError, match="no edges 'sobl'"):
        choose_preprocessing(data, edges="sobl")
    with pytest.raises(InputError, match="no features 'hog'"):
        choose_preprocessing(data, features="hog")
    with pytest.raises(InputError, match="cannot be joined"):
        choose_preprocessing(data, edges="given,sobel")
    with pytest.raises(InputError, match="this version"):
        Preprocessing.from_json({"format": "images", "magic": 1})
