"""pydensecrf's names on our engine, against numbers that pydensecrf2 1.1 printed.

(Of a multiple of four pixels: for others its blocks of four read beyond the features, which moves its numbers by 1e-4.)
"""

import numpy as np
import pytest

import backfield.compat.pydensecrf.densecrf as dcrf
from backfield.compat import pydensecrf
from backfield.compat.pydensecrf import utils
from backfield.errors import InputError

RNG = np.random.default_rng(7)
IMAGE = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)
P = RNG.dirichlet(np.ones(3), 48).T
MATRIX = np.array([[0, 1, 2], [0.5, 0, 1], [2, 1, -1]], np.float32)
COMPAT = {"number": 3.0, "diagonal": np.array([-1, -2, 0.5], np.float32), "matrix": MATRIX}
#: (compatibility, normalisation) -> Q of three pixels after 4 iterations, klDivergence after one step.
PRINTED = {
    ("number", "NO_NORMALIZATION"): ([1.0, 0.93908, 0.98758, 0.0, 0.06092, 0.01242, 0.0, 0.0, 0.0], -1400.6868),
    ("number", "NORMALIZE_BEFORE"): (
        [0.98352, 0.03687, 0.00604, 0.01285, 0.92804, 0.98248, 0.00362, 0.03509, 0.01148],
        -123.1002,
    ),
    ("number", "NORMALIZE_AFTER"): (
        [0.99455, 0.08364, 0.01188, 0.00432, 0.87846, 0.97805, 0.00113, 0.0379, 0.01007],
        -121.1231,
    ),
    ("number", "NORMALIZE_SYMMETRIC"): (
        [0.98973, 0.0527, 0.00794, 0.00807, 0.9104, 0.98133, 0.0022, 0.0369, 0.01073],
        -120.4319,
    ),
    ("diagonal", "NO_NORMALIZATION"): ([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0], -1142.831),
    ("diagonal", "NORMALIZE_BEFORE"): (
        [0.58656, 0.00899, 0.00411, 0.37892, 0.96292, 0.97748, 0.03452, 0.0281, 0.01841],
        -66.8647,
    ),
    ("diagonal", "NORMALIZE_AFTER"): (
        [0.40948, 0.00535, 0.00243, 0.56846, 0.97893, 0.98769, 0.02206, 0.01573, 0.00988],
        -64.6518,
    ),
    ("diagonal", "NORMALIZE_SYMMETRIC"): (
        [0.51696, 0.00719, 0.00328, 0.45389, 0.97084, 0.98266, 0.02914, 0.02197, 0.01406],
        -64.6274,
    ),
    ("matrix", "NO_NORMALIZATION"): ([0.00891, 0.00011, 7e-05, 0.99097, 0.99985, 0.99989, 0.00012, 4e-05, 4e-05], 181.4879),
    ("matrix", "NORMALIZE_BEFORE"): (
        [0.80113, 0.04665, 0.01942, 0.17378, 0.79125, 0.88761, 0.02509, 0.16209, 0.09297],
        61.6093,
    ),
    ("matrix", "NORMALIZE_AFTER"): (
        [0.78698, 0.04033, 0.01728, 0.19231, 0.81009, 0.90685, 0.0207, 0.14958, 0.07587],
        60.9866,
    ),
    ("matrix", "NORMALIZE_SYMMETRIC"): (
        [0.79574, 0.04374, 0.01848, 0.18113, 0.79856, 0.8964, 0.02313, 0.15771, 0.08511],
        60.5182,
    ),
}


def field(compat=3.0, normalization=dcrf.NORMALIZE_SYMMETRIC):
    crf = dcrf.DenseCRF2D(8, 6, 3)
    crf.setUnaryEnergy(-np.log(P).astype(np.float32))
    crf.addPairwiseGaussian(sxy=2, compat=compat, normalization=normalization)
    crf.addPairwiseBilateral(sxy=(4, 5), srgb=60, rgbim=IMAGE, compat=compat, normalization=normalization)
    return crf


@pytest.mark.parametrize("case", PRINTED, ids=str)
def test_numbers_of_pydensecrf2(case):
    compat, normalization = case
    wanted, divergence = PRINTED[case]
    crf = field(COMPAT[compat], getattr(dcrf, normalization))
    assert crf.inference(4)[:, [0, 7, 47]].ravel() == pytest.approx(wanted, abs=2e-5)
    Q, one, two = crf.startInference()
    assert pytest.approx(P, abs=1e-6) == Q
    crf.stepInference(Q, one, two)
    assert crf.klDivergence(Q) == pytest.approx(divergence, rel=1e-4)


def test_steps_are_the_iterations():
    crf = field()
    Q, one, two = crf.startInference()
    for _ in range(4):
        crf.stepInference(Q, one, two)
    assert np.abs(crf.inference(4) - Q).max() < 1e-5
    assert crf.inference(0) == pytest.approx(P, abs=1e-6)


def test_features_of_your_own_are_those_of_2d():
    crf = dcrf.DenseCRF(48, 3)
    crf.setUnary(dcrf.ConstUnary(-np.log(P)))
    crf.addPairwiseEnergy(utils.create_pairwise_gaussian((2, 2), (6, 8)), compat=3)
    crf.addPairwiseEnergy(utils.create_pairwise_bilateral((5, 4), (60, 60, 60), IMAGE, chdim=2), compat=3)
    # Axes come in another order, in which the lattice lies otherwise.
    assert np.abs(crf.inference(4) - field().inference(4)).mean() < 0.05
    one = utils.create_pairwise_bilateral((5, 4), 60, IMAGE[..., 0])
    assert one.shape == (3, 48) and one[2] == pytest.approx(IMAGE[..., 0].reshape(-1) / 60)


def test_unary_energies():
    assert utils.unary_from_softmax(P) == pytest.approx(-np.log(P), rel=1e-5)
    assert utils.unary_from_softmax(P, scale=0.5)[:, 3] == pytest.approx(-np.log(0.5 * P[:, 3] + 0.5 / 3), rel=1e-5)
    assert utils.unary_from_softmax(np.array([[0.0], [1.0]]), clip=0.01)[0, 0] == pytest.approx(-np.log(0.01))
    u = utils.unary_from_labels(np.array([[0, 1], [3, 2]]), 3, gt_prob=0.6)
    assert np.exp(-u) == pytest.approx(np.array([[1 / 3, 0.6, 0.2, 0.2], [1 / 3, 0.2, 0.2, 0.6], [1 / 3, 0.2, 0.6, 0.2]]))
    sure = utils.unary_from_labels(np.array([0, 2]), 3, gt_prob=0.6, zero_unsure=False)
    assert np.exp(-sure) == pytest.approx(np.array([[0.6, 0.2], [0.2, 0.2], [0.2, 0.6]]))
    assert utils.softmax_to_unary(P) == pytest.approx(-np.log(P), rel=1e-5)
    assert np.array_equal(utils.compute_unary(np.array([1, 2]), 3), utils.unary_from_labels(np.array([1, 2]), 3, 0.5))


def test_logistic_unary():
    weights, features = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 48))
    crf = dcrf.DenseCRF(48, 3)
    crf.setUnary(dcrf.LogisticUnary(weights, features))
    q = np.exp(-(weights @ features))
    assert crf.inference(1) == pytest.approx(q / q.sum(axis=0), abs=1e-5)


def test_refusals():
    crf = dcrf.DenseCRF2D(8, 6, 3)
    with pytest.raises(ValueError, match=r"Bad shape for unary energy \(Need \(3, 48\), received \(2, 48\)\)"):
        crf.setUnaryEnergy(np.zeros((2, 48), np.float32))
    with pytest.raises(ValueError, match="Bad shape for pairwise bilateral"):
        crf.addPairwiseBilateral(sxy=3, srgb=3, rgbim=IMAGE[:5], compat=1)
    with pytest.raises(InputError, match="only works for RGB images of uint8"):
        crf.addPairwiseBilateral(sxy=3, srgb=3, rgbim=IMAGE.astype(float), compat=1)
    with pytest.raises(ValueError, match="Bad shape for pairwise energy"):
        crf.addPairwiseEnergy(np.zeros((2, 47), np.float32), compat=1)
    with pytest.raises(InputError, match="at most 16 features, received 17"):
        crf.addPairwiseEnergy(np.zeros((17, 48), np.float32), compat=1)
    with pytest.raises(InputError, match="sxy must be a positive number"):
        crf.addPairwiseGaussian(sxy=0, compat=1)
    with pytest.raises(InputError, match="compat must be a number"):
        crf.addPairwiseGaussian(sxy=1, compat=np.ones(4))
    with pytest.raises(InputError, match="finite numbers"):
        crf.setUnaryEnergy(np.full((3, 48), np.nan))
    with pytest.raises(InputError, match="gt_prob"):
        utils.unary_from_labels(np.zeros(3, int), 3, 1.0)
    assert pydensecrf.densecrf is dcrf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda crf: crf.inference(-1), "niter must be an integer >= 0"),
        (lambda crf: crf.inference("5"), "niter must be an integer"),
        (lambda crf: dcrf.DenseCRF(2.5, 3), "nvar must be an integer >= 1"),
        (lambda crf: crf.addPairwiseGaussian(sxy="wide", compat=1), "sxy must be .* received 'wide'"),
        (lambda crf: crf.addPairwiseGaussian(sxy=np.inf, compat=1), "sxy must be a finite number"),
        (lambda crf: crf.addPairwiseGaussian(3, 1, normalization=7), "normalization must be an integer .* received 7"),
        (lambda crf: crf.addPairwiseGaussian(3, 1, kernel=7), "kernel must be an integer .* received 7"),
        (lambda crf: crf.addPairwiseEnergy(np.zeros((0, 48)), 1), "features must be a matrix of finite numbers"),
        (lambda crf: crf.setUnaryEnergy("no"), "unary energy must be a matrix of finite numbers"),
        (lambda crf: crf.stepInference(np.zeros((2, 48), np.float32)), "Q must be probabilities of shape"),
        (lambda crf: crf.klDivergence(np.zeros((2, 48), np.float32)), "Q must be probabilities of shape"),
        (lambda crf: utils.unary_from_labels(np.array([1, 255]), 3, 0.5), "labels must be integers 0 .. 3"),
        (lambda crf: utils.unary_from_labels(np.array([1, -1]), 3, 0.5), "labels must be integers 0 .. 3"),
        (lambda crf: utils.unary_from_labels(np.array([3]), 3, 0.5, zero_unsure=False), "labels must be integers 0 .. 2"),
        (lambda crf: utils.unary_from_labels(np.array([1.0]), 3, 0.5), "labels must be integers 0 .. 3"),
        (lambda crf: utils.unary_from_softmax(np.log(P)), "sm must be probabilities"),
        (lambda crf: utils.unary_from_softmax(np.nan * P), "sm must be probabilities"),
        (lambda crf: utils.create_pairwise_gaussian((0, 3), (6, 8)), "sdims must have a bandwidth for each of 2 axes"),
        (lambda crf: utils.create_pairwise_bilateral((3, 3), 0, IMAGE, chdim=2), "schan must be a number or one for each"),
        (lambda crf: utils.create_pairwise_bilateral((3, 3), 1, IMAGE, chdim=9), "chdim must be an integer"),
    ],
)
def test_hostile_calls(call, message):
    with pytest.raises(InputError, match=message):
        call(dcrf.DenseCRF2D(8, 6, 3))
