"""ChainCRF: labels of the positions of sequences."""

from __future__ import annotations

from backfield.estimators.crf import CRF

#: The likelihood by exact inference.
_EXACT = {"inference": "chain", "loss": "surrogate_likelihood", "gradient": None, "start": "zero", "dtype": "float64"}


class ChainCRF(CRF, structure="chain", defaults=_EXACT):
    """A linear-chain conditional random field; parameters as in :class:`GridCRF`, but exact inference by default.

    X is a list of (T, F) arrays, CSR matrices, or lists of {feature: value} dicts or lists of names; y a list of sequences
    of ints or strings (-1 or "" = hidden). A value of a dict is a number, or a string: {"word": "the"} has the feature
    "word=the" (``separator``); or a list or dict of more of them, whose names follow after the separator.

    ``constraints`` are transitions that cannot be, in learning and in prediction: "BIO", "BIOES", or a list of forbidden
    pairs of labels (None: before the first position, after the last), {"forbidden": pairs} or {"allowed": pairs}. With
    ``decoder="map"`` predicted sequences keep them; ``max_marginal`` chooses each label by itself.
    """
