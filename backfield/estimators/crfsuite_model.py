"""Models of CRFsuite as :class:`ChainCRF`, and back."""

from __future__ import annotations

import numpy as np

from backfield.data.formats.crfsuite import CrfsuiteModel, format_crfsuite
from backfield.energies import Linear, ObservedLinear
from backfield.energies.observed_constant import BoundConstant
from backfield.energies.observed_linear import BoundLinear
from backfield.errors import InputError
from backfield.estimators._assembly import Classes, Learned, Reader
from backfield.estimators._fitting import Fitted
from backfield.estimators.chain_crf import ChainCRF
from backfield.estimators.crf import CRF
from backfield.features.columns import Columns
from backfield.structures import Chain
from backfield.training.weights import WeightLayout


def from_crfsuite(model: CrfsuiteModel) -> ChainCRF:
    """Return a fitted estimator that tags as CRFsuite does: Viterbi, labels in the order of the file."""
    if "" in model.labels:
        raise InputError('one of the labels is "", which means hidden here')
    crf = ChainCRF(unary="observed_linear", decoder="map").set_params(separator=":")
    count, layout = len(model.labels), WeightLayout()
    energy = ObservedLinear().bind(model.ptr, model.targets, count)
    layout.add("unary", energy, len(model.attributes), count, True)
    layout.add("factors", Linear(), 0, count**2, True)
    names = Columns(zip(model.attributes, range(len(model.attributes)), strict=True))
    learned = Learned(Reader(crf._settings().structure, names), Classes(np.array(model.labels)), layout)
    crf._fitted = Fitted(learned, np.concatenate([model.weights, model.transitions.reshape(-1)]), [])
    return crf


def to_crfsuite(crf: CRF) -> CrfsuiteModel:
    """Return the content of a file of CRFsuite; models that it cannot express are refused."""
    state = crf._state()
    learned, names = state.learned, state.learned.reader.names
    if not isinstance(learned.reader.structure, Chain) or names is None:
        raise InputError("CRFsuite has chains with named features only: fit a ChainCRF on lists of dicts or of names.")
    if learned.reader.structure.order != 1:
        raise InputError("CRFsuite has chains of order 1 only.")
    if learned.rules is not None:
        raise InputError("CRFsuite has no constraints: a model that has some cannot be written for it.")
    labels = [str(label) for label in learned.classes.values.tolist()]
    if any("\0" in text for text in [*labels, *names]):
        raise InputError("CRFsuite has no labels or features with a zero byte.")
    ptr, targets, weights = _state_weights(learned, state.weights)
    transitions = _transitions(learned, state.weights)
    if not (np.isfinite(weights).all() and np.isfinite(transitions).all()):
        raise InputError("CRFsuite takes finite weights only.")
    return CrfsuiteModel(labels, list(names), ptr, targets, weights, transitions)


def write_crfsuite(crf: CRF) -> bytes:
    """Return a fitted estimator as the bytes of a file of CRFsuite."""
    return format_crfsuite(to_crfsuite(crf))


def _state_weights(learned: Learned, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    block, count = learned.layout.unary[0], len(learned.classes)
    values = w[block.start : block.stop]
    if isinstance(block.energy, BoundLinear):
        return block.energy.ptr, block.energy.labels, values
    if type(block.energy) is not Linear or block.intercept:
        intercept = " and fit_intercept=False" if type(block.energy) is Linear else ""
        raise InputError(f"CRFsuite has weights of features and labels only: fit with unary='observed_linear'{intercept}.")
    ptr = np.arange(block.n_features + 1) * count
    return ptr, np.tile(np.arange(count, dtype=np.int32), block.n_features), values


def _transitions(learned: Learned, w: np.ndarray) -> np.ndarray:
    count, blocks = len(learned.classes), learned.layout.factors
    table = np.zeros((count, count))
    for block in blocks:
        if block.n_features or not isinstance(block.energy, Linear | BoundConstant):
            raise InputError("CRFsuite has one weight for each pair of labels: fit with pairwise='linear'.")
        found = block.energy.tables(w[block.start : block.stop], np.empty((0, 0)), count**2, True)
        assert found is not None
        table = found.tables.reshape(count, count)
    return table
