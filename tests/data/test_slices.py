"""Volumes slice by slice: pictures of 8 bits, models of images on volumes, predictions that are one file again."""

import numpy as np
import pytest

import backfield as bf
from backfield.cli.app import run
from backfield.data.formats.stacks import Stack
from backfield.data.slices import SlicedPrediction, Slices
from backfield.registry import get
from backfield.structures.reading import other_unit, read_data
from tests.data.test_stacks import VOLUME, save

tifffile = pytest.importorskip("tifffile")


@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".tif", ".zarr"])
def test_a_slice_is_a_picture(tmp_path, ending):
    slices = Slices(Stack(save(tmp_path / f"a{ending}"), 3))
    nifti = ending.startswith(".nii")  # columns first
    assert len(slices) == (9 if nifti else 7) and slices.shape == ((12, 7) if nifti else (12, 9))
    expected = VOLUME[:, :, 4].T if nifti else VOLUME[4]
    np.testing.assert_array_equal(slices[4], np.repeat(expected[..., None], 3, axis=2))


def test_other_numbers_are_scaled_alike_in_all_slices(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(-500, 100, (20, 40, 50)).astype(np.int16)
    values[:, :5] = np.linspace(-500, 500, 20).astype(np.int16)[:, None, None]  # brighter from slice to slice
    slices = Slices(Stack(save(tmp_path / "a.tif", values), 3))
    means = [slices[k][:5].mean() for k in range(20)]
    assert (np.diff(means) > 0).all() and slices[0].dtype == np.uint8
    assert 0 <= slices[3].min() < 30 and slices[19].max() == 255
    floats = values.astype(np.float32)
    floats[0, 0, 0] = np.nan
    assert np.abs(Slices(Stack(save(tmp_path / "b.tif", floats), 3))[3].astype(int) - slices[3]).max() <= 1
    assert Slices(Stack(save(tmp_path / "c.tif", np.full((6, 4, 5), 7, np.uint16)), 3))[1].max() == 0


def test_odd_channels_are_refused(tmp_path):
    path = save(tmp_path / "a.nii", np.zeros((5, 6, 7, 2), np.uint8))
    with pytest.raises(bf.InputError, match="1, 3 or 4 channels"):
        Slices(Stack(path, 3))


@pytest.mark.parametrize("ending", [".nii.gz", ".tif", ".zarr"])
def test_predictions_of_slices_become_a_volume(tmp_path, ending):
    slices = Slices(Stack(save(tmp_path / f"a{ending}"), 3))
    out = tmp_path / "out"
    out.mkdir()
    prediction = SlicedPrediction(slices, [out / f"a{ending}", out / f"a.proba{ending}"])
    for k in range(len(slices)):
        labels = slices[k][..., 0] % 3
        prediction.put(k, labels, np.eye(3, dtype=np.float32)[labels])
    np.testing.assert_array_equal(Stack(out / f"a{ending}", 3)[...], VOLUME % 3)
    np.testing.assert_array_equal(Stack(out / f"a.proba{ending}", 3)[...], np.eye(3)[VOLUME % 3])
    assert len(list(out.iterdir())) == 2


def write_folder(folder, ending=".tif"):
    rng = np.random.default_rng(0)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for k in range(2):
        truth = np.zeros((5, 20, 24), np.uint8)
        truth[:, 4:15, 6 + 2 * k : 18] = 1
        image = np.clip(60 + 120 * truth + rng.normal(0, 10, truth.shape), 0, 255).astype(np.uint8)
        truth[0, :2] = 255
        save(folder / "images" / f"v{k}{ending}", image)
        save(folder / "masks" / f"v{k}{ending}", truth)
    return folder


@pytest.mark.parametrize("ending", [".nii.gz", ".tif"])
def test_a_model_of_images_reads_volumes_where_it_is_named(tmp_path, ending):
    folder = write_folder(tmp_path / "data", ending)
    assert read_data(folder).structure.startswith("volume")
    assert other_unit(folder, get("structures", "grid")) is None
    data = read_data(folder, structure="grid")
    count = 24 if ending == ".nii.gz" else 5
    assert len(data) == 2 * count and data.unit == ("slice", "pixel") and data.names[1] == "v0[1]"
    assert {each.shape[:2] for each in data.inputs} == {data.labels[0].shape}
    model, out = tmp_path / "m.bf", tmp_path / "out"
    fit = ["fit", str(folder), "--model", "grid", "-o", str(model), "--inference", "mean_field(n_iter=3)", "--quiet"]
    assert run([*fit, "--learner", "lbfgs(max_iter=5)"]) == 0
    assert run(["predict", str(model), str(folder), "-o", str(out), "--proba"]) == 0
    assert {path.name for path in out.iterdir()} == {f"v{k}{p}{ending}" for k in range(2) for p in ("", ".proba")}
    for k in range(2):
        truth = Stack(folder / "masks" / f"v{k}{ending}", 3)[...]
        found = Stack(out / f"v{k}{ending}", 3)[...]
        assert found.shape == truth.shape and (found == truth)[truth != 255].mean() > 0.97
        assert Stack(out / f"v{k}.proba{ending}", 3).shape == (*truth.shape, 2)
    assert run(["evaluate", str(model), str(folder), "--report", str(tmp_path / "report.html")]) == 0
    one = folder / "images" / f"v1{ending}"
    assert run(["predict", str(model), str(one), "-o", str(tmp_path / f"one{ending}")]) == 0
    np.testing.assert_array_equal(Stack(tmp_path / f"one{ending}", 3)[...], Stack(out / f"v1{ending}", 3)[...])
