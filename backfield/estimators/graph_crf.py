"""GraphCRF: labels of the variables of any graph."""

from __future__ import annotations

from backfield.estimators.crf import CRF


class GraphCRF(CRF, structure="graph"):
    """A conditional random field on your own graphs, given as :class:`Sample` s; parameters as in :class:`GridCRF`.

    Labels of variable i are 0 .. graph.labels[i] - 1. Weights are tied per node type and per factor type.
    """
