"""NIfTI, TIFF and zarr: read by windows, written with the geometry of the input, refused in one sentence where damaged."""

import gzip
import json
import pickle
import struct
import zlib

import numpy as np
import pytest

import backfield as bf
from backfield.data.formats.stacks import Stack, possible_axes, read_mask, write_stack
from backfield.structures.reading import read_data

nibabel = pytest.importorskip("nibabel")
tifffile = pytest.importorskip("tifffile")
zarr = pytest.importorskip("zarr")
VOLUME = np.random.default_rng(0).integers(0, 200, (7, 12, 9)).astype(np.uint8)
AFFINE = np.array([[2.0, 0, 0, -5], [0, 0.5, 0, 3], [0, 0, 1.5, 1], [0, 0, 0, 1]])


def save(path, values=VOLUME, **options):
    name = path.name
    if name.endswith((".nii", ".nii.gz")):
        nibabel.save(nibabel.Nifti1Image(values, AFFINE), path)
    elif name.endswith(".zarr"):
        array = zarr.open_array(str(path), mode="w", shape=values.shape, chunks=(4,) * values.ndim, dtype=values.dtype)
        array[...] = values
        array.attrs["spacing"] = [2.0, 0.5, 1.5]
    else:
        tifffile.imwrite(path, values, **options)
    return path


@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".tif", ".zarr"])
def test_windows(tmp_path, ending):
    stack = Stack(save(tmp_path / f"a{ending}"), 3)
    assert stack.shape == VOLUME.shape and stack.dtype == np.uint8
    np.testing.assert_array_equal(stack[2:5, 1:, 3:4], VOLUME[2:5, 1:, 3:4])
    np.testing.assert_array_equal(np.asarray(stack), VOLUME)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(stack))[1:2], VOLUME[1:2])
    if ending != ".tif":
        assert stack.spacing == (2.0, 0.5, 1.5)


@pytest.mark.parametrize("options", [{"compression": "zlib"}, {"tile": (16, 16), "compression": "zlib"}, {}])
def test_tiffs_of_all_layouts(tmp_path, options):
    path = save(tmp_path / "a.tif", **options)
    np.testing.assert_array_equal(Stack(path, 3)[3:6, :4], VOLUME[3:6, :4])


def test_spacing_of_imagej(tmp_path):
    options = {"imagej": True, "resolution": (2.0, 4.0), "metadata": {"axes": "ZYX", "spacing": 5.0}}
    assert Stack(save(tmp_path / "a.tif", **options), 3).spacing == (5.0, 0.25, 0.5)


def test_scaled_nifti(tmp_path):
    image = nibabel.Nifti1Image(VOLUME.astype(np.int16), AFFINE)
    image.header.set_slope_inter(0.5, 10)
    nibabel.save(image, tmp_path / "a.nii")
    stack = Stack(tmp_path / "a.nii", 3)
    assert stack.dtype == np.float64
    np.testing.assert_allclose(stack[:, 2:4], np.asarray(nibabel.load(tmp_path / "a.nii").dataobj)[:, 2:4])


def test_channels_come_last(tmp_path):
    many = np.random.default_rng(1).integers(0, 9, (3, 7, 12, 9)).astype(np.uint8)
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    array = group.create_array("0", shape=many.shape, dtype="u1")
    array[...] = many
    scale = {"type": "scale", "scale": [1.0, 4.0, 2.0, 2.0]}
    axes = [{"name": name} for name in "czyx"]
    group.attrs["multiscales"] = [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": [scale]}]}]
    stack = Stack(tmp_path / "a.zarr", 3)
    assert stack.shape == (7, 12, 9, 3) and stack.spacing == (4.0, 2.0, 2.0)
    np.testing.assert_array_equal(stack[1:3, :, 2:], np.moveaxis(many, 0, -1)[1:3, :, 2:])
    assert possible_axes(tmp_path / "a.zarr") == (3,)
    assert possible_axes(save(tmp_path / "b.tif", np.zeros((12, 9, 3), np.uint8), photometric="rgb")) == (2,)
    assert possible_axes(save(tmp_path / "c.tif", photometric="minisblack")) == (3,)
    assert possible_axes(save(tmp_path / "d.nii", np.zeros((5, 6, 7, 2), np.uint8))) == (3,)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".tif", ".zarr"])
def test_predictions_have_the_geometry_of_the_input(tmp_path, ending):
    like = Stack(save(tmp_path / f"a{ending}"), 3)
    labels = (VOLUME % 3).astype(np.int64)
    write_stack(tmp_path / f"b{ending}", labels, like)
    found = Stack(tmp_path / f"b{ending}", 3)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found[...], labels)
    if ending.startswith(".nii"):
        np.testing.assert_array_equal(nibabel.load(tmp_path / f"b{ending}").affine, AFFINE)
    p = np.random.default_rng(0).random((*VOLUME.shape, 2)).astype(np.float32)
    write_stack(tmp_path / f"p{ending}", p, like)
    np.testing.assert_array_equal(np.squeeze(Stack(tmp_path / f"p{ending}", 3)[...]), p)
    assert {path.name[0] for path in tmp_path.iterdir()} == set("abp")


def test_masks(tmp_path):
    image = Stack(save(tmp_path / "a.nii.gz"), 3)
    mask = (VOLUME % 3).astype(np.float64)
    mask[0] = 255
    labels = read_mask(save(tmp_path / "m.nii.gz", mask), image)
    assert labels.dtype == np.int32 and (labels[0] == -1).all() and (labels[1:] == mask[1:]).all()
    with pytest.raises(bf.InputError, match="integers"):
        read_mask(save(tmp_path / "n.nii.gz", mask + 0.5), image)
    with pytest.raises(bf.InputError, match="sizes must agree"):
        read_mask(save(tmp_path / "o.nii.gz", mask[1:]), image)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".tif", ".zarr"])
@pytest.mark.parametrize("damage", ["short", "noise", "empty"])
def test_damaged_files_are_one_sentence(tmp_path, ending, damage):
    path = save(tmp_path / f"a{ending}")
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    for file in files:
        data = file.read_bytes()
        changed = bytearray(data)
        changed[: len(data) // 2] = bytes(17 * k % 251 for k in range(len(data) // 2))
        file.write_bytes({"short": data[: len(data) // 2], "noise": bytes(changed), "empty": b""}[damage])
    with pytest.raises(bf.InputError, match="a" + ending) as error:
        Stack(path, 3)[...]
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize(
    ("place", "kind", "values", "words"),
    [
        (40, "<4h", (3, -7, 12, 9), r"positive sizes; the header declares \(-7, 12, 9\)"),
        (40, "<4h", (0, 7, 12, 9), r"two or more axes of positive sizes; the header declares"),
        (76, "<4f", (1, 0, 0.5, 1.5), r"spacing of its voxels must be 3 positive numbers, received \(0"),
        (76, "<4f", (1, np.nan, 0.5, 1.5), "spacing of its voxels must be 3 positive numbers"),
        (70, "<h", (9999,), "cannot be read as NIfTI"),
        (108, "<f", (-5.0,), "cannot be read as NIfTI"),
    ],
)
def test_damaged_headers_name_file_and_fault(tmp_path, ending, place, kind, values, words):
    path = save(tmp_path / f"a{ending}")
    packed = ending.endswith("gz")
    data = bytearray(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    struct.pack_into(kind, data, place, *values)
    path.write_bytes(gzip.compress(bytes(data)) if packed else bytes(data))
    with pytest.raises(bf.InputError, match=f"a{ending}.*{words}"):
        read_data(path, with_labels=False)


def test_what_a_file_declares_is_limited(tmp_path, monkeypatch):
    huge = zarr.open_array(str(tmp_path / "a.zarr"), mode="w", shape=(10**6, 10**6), chunks=(100, 100), dtype="u1")
    assert huge.shape == (10**6, 10**6)
    stack = Stack(tmp_path / "a.zarr", 2)
    assert stack[:50, 10**6 - 3 :].shape == (50, 3)
    with pytest.raises(bf.InputError, match="use tiles, or set BACKFIELD_MAX_BYTES"):
        stack[...]
    path = save(tmp_path / "b.nii.gz", np.zeros((50, 50, 50), np.uint8))
    monkeypatch.setenv("BACKFIELD_MAX_BYTES", "10000")
    with pytest.raises(bf.InputError, match="declares 125000 bytes"):
        Stack(path, 3)[...]


def bomb(count):
    """A megabyte of zlib that unpacks to a thousand times as much, or less of it."""
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(2**20)) for _ in range(count)) + packer.flush()


@pytest.mark.parametrize("version", [2, 3])
def test_a_chunk_that_would_unpack_to_far_more_is_refused(tmp_path, version):
    values = np.arange(4 * 5 * 6, dtype=np.uint8).reshape(4, 5, 6)
    group = zarr.open_group(str(tmp_path / "ome.zarr"), mode="w", zarr_format=version)
    group.create_array("0", shape=values.shape, chunks=(2, 5, 6), dtype="u1")[...] = values
    group.attrs["multiscales"] = [{"axes": ["z", "y", "x"], "datasets": [{"path": "/0"}]}]
    stack = Stack(tmp_path / "ome.zarr", 3)
    np.testing.assert_array_equal(stack[...], values)
    victim = max(
        (tmp_path / "ome.zarr" / "0").rglob("*1*0*0" if version == 2 else "1/0/0"), key=lambda path: len(path.parts)
    )
    victim.write_bytes(bomb(100))
    np.testing.assert_array_equal(stack[:2], values[:2])
    with pytest.raises(bf.InputError, match="has more bytes than its numbers need"):
        stack[1:3]


def test_a_page_that_would_unpack_to_far_more_is_refused(tmp_path):
    path = save(tmp_path / "a.tif", compression="zlib")
    start, data = path.stat().st_size, bomb(100)
    path.write_bytes(path.read_bytes() + data)
    with tifffile.TiffFile(path, mode="r+b") as file:
        file.pages[0].tags["StripOffsets"].overwrite([start])
        file.pages[0].tags["StripByteCounts"].overwrite([len(data)])
    with pytest.raises(bf.InputError, match="a page has more bytes than its pixels need"):
        Stack(path, 3)


def test_a_codec_is_known_whatever_its_spelling(tmp_path):
    path = save(tmp_path / "a.zarr")
    text = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(text.replace('"attributes"', '"codec": "\\u0070ickle", "attributes"'))
    with pytest.raises(bf.InputError, match="chunks are pickles"):
        Stack(path, 3)


def test_chunks_that_are_pickles_are_refused(tmp_path):
    path = save(tmp_path / "a.zarr")
    for file in path.rglob("zarr.json"):
        file.unlink()
    meta = {"zarr_format": 2, "shape": [4, 4], "chunks": [4, 4], "dtype": "|u1", "fill_value": 0, "order": "C"}
    meta |= {"compressor": None, "filters": [{"id": "pickle", "protocol": 4}]}
    (path / ".zarray").write_text(json.dumps(meta))
    (path / "0.0").write_bytes(pickle.dumps(print))
    with pytest.raises(bf.InputError, match="its chunks are pickles"):
        Stack(path, 2)


def test_bad_spacing_and_axes(tmp_path):
    path = save(tmp_path / "a.zarr")
    zarr.open_array(str(path), mode="r+").attrs["spacing"] = [1.0, 0.0, 1.0]
    with pytest.raises(bf.InputError, match="spacing of its voxels must be 3 positive numbers"):
        Stack(path, 3)
    with pytest.raises(bf.InputError, match="this file has 5 axes"):
        Stack(save(tmp_path / "b.nii", np.zeros((3, 3, 3, 2, 2), np.uint8)), 3)
    with pytest.raises(bf.InputError, match="no such file"):
        Stack(tmp_path / "c.nii", 3)


def folder(path, ending, n=2):
    for inner in ("images", "masks"):
        (path / inner).mkdir(parents=True)
    for k in range(n):
        truth = np.zeros(VOLUME.shape, np.uint8)
        truth[2:5, 3:9, 2 + k : 7] = 1
        noise = np.random.default_rng(k).normal(0, 25, truth.shape)
        save(path / "images" / f"v{k}{ending}", np.clip(60 + 80 * truth + noise, 0, 255).astype(np.uint8))
        save(path / "masks" / f"v{k}{ending}", truth)
    return path


@pytest.mark.parametrize("ending", [".nii.gz", ".tif", ".zarr"])
def test_the_command_line_on_volumes(tmp_path, ending, capsys):
    from backfield.cli.app import run as command

    data, model = folder(tmp_path / "data", ending), tmp_path / "model.bf"

    def run(*arguments):
        code = command([str(each) for each in arguments])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    run(
        "fit",
        data,
        "-o",
        model,
        "--features",
        "raw",
        "--learner",
        "lbfgs(max_iter=5)",
        "--inference",
        "mean_field(n_iter=2)",
        "--quiet",
    )
    crf = bf.load(model)
    assert crf.structure_.name == "volume"
    assert "accuracy" in run("evaluate", model, data, "--report", tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().count("<button class=open") == 12  # six layers of two volumes
    run("predict", model, data, "-o", tmp_path / "out", "--tile", 6, "--proba")
    run("predict", model, data / "images" / f"v0{ending}", "-o", tmp_path / f"one{ending}")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"v{k}{part}{ending}" for k in range(2) for part in ("", ".proba")}
    whole = Stack(tmp_path / f"one{ending}", 3)[...]
    np.testing.assert_array_equal(Stack(tmp_path / "out" / f"v0{ending}", 3)[...], whole)
    x = Stack(data / "images" / f"v0{ending}", 3)[...] / np.float32(255)
    np.testing.assert_array_equal(crf.predict([x.astype(np.float32)])[0], whole)


def test_images_without_end_are_read_as_grids(tmp_path):
    image = np.random.default_rng(0).integers(0, 255, (20, 30, 3)).astype(np.uint8)
    array = zarr.open_array(str(tmp_path / "a.zarr"), mode="w", shape=image.shape, chunks=(8, 8, 3), dtype="u1")
    array[...] = image
    data = read_data(tmp_path / "a.zarr", with_labels=False)
    assert data.structure.startswith("grid") and data.inputs[0].shape == (20, 30, 3)
    assert data.format.inputs(data, data.format.choose(data, "local", None))[0].shape[:2] == (20, 30)
    assert read_data(tmp_path / "a.zarr", with_labels=False, structure="volume").structure.startswith("volume")
