"""What a user's project might hold; ``make lint`` checks it with mypy, strictly."""

import numpy as np

import backfield as bf


def learn(images: list[np.ndarray], masks: list[np.ndarray]) -> bf.GridCRF:
    crf = bf.GridCRF(inference="tree_reweighted(n_iter=5)", n_jobs=2)
    crf.fit(images, masks)
    return crf


def answer(graph: bf.Graph, unary: np.ndarray, tables: np.ndarray) -> float:
    theta = bf.Potentials(graph, unary, tables)
    run = bf.infer(theta, "exact")
    value, gradient = bf.value_and_gradient(theta, np.zeros(graph.n_variables, int), loss="piecewise")
    other: bf.Potentials = gradient
    assert other.graph is graph
    return float(run.log_partition) + value


def estimators() -> list[bf.CRF]:
    return [
        bf.GridCRF("tree_reweighted(n_iter=5)", neighbours=8, l2=0.1),
        bf.VolumeCRF(offsets=[(0, 0, 1)], spacing=(50, 4, 4)),
        bf.DenseCRF(unary="given", kernels=["position(3)"], compatibility="full"),
        bf.ChainCRF(constraints="BIO", order=2, l1=0.1),
    ]
