"""Binary TRW on volumes and other neighbourhoods, against the 4-connected image: ns per message, gradients, linearity.

    python -m backfield_benchmarks.volumes [--repeat N] [--dtype float32] [--side 100] [--sides 64 128] [--cut DIR]

Grids of 10^6 variables, 10 sweeps. Prints, as JSON: ns (of the processor, median) per message of each neighbourhood and how
many times that of the 4-connected image it is; the seconds of a gradient of the univariate logistic loss through 5 sweeps,
over those of the 5 sweeps with all states kept and the marginals alone; then, for each of ``--sides``, ns and bytes per
voxel of 6-connected cubes.
All are measured by turns in one process. ``--cut`` measures cuts of noisy spheres (128^3, 6-connected) against PyMaxflow,
which lies in DIR (``pip install --target DIR --no-deps PyMaxflow``; it is GPL, and nothing else here uses it).
"""

import argparse
import json
import sys

import numpy as np

import backfield as bf
from backfield.graph.labeling import as_labeling
from backfield.inference import TreeReweighted
from backfield.inference.message_passing.colours import ColoursEngine
from backfield.losses import UnivariateLogistic
from backfield_benchmarks.potts import medians

#: Times the ns per message of the 4-connected image that a neighbourhood may cost.
BARS = {"2-D, 8": 1.5, "3-D, 6": 1.5, "3-D, 18": 2.0, "3-D, 26": 2.0}
GRADIENT_BAR = 3.5
CUT_BAR = 0.8


def grids(side):
    """The neighbourhoods that are compared, at about the same number of variables."""
    rows = round(side**1.5)
    return {
        "2-D, 4": bf.Graph.grid(rows, rows),
        "2-D, 8": bf.Graph.grid(rows, rows, neighbours=8),
        "3-D, 6": bf.Graph.grid((side, side, side)),
        "3-D, 18": bf.Graph.grid((side, side, side), neighbours=18),
        "3-D, 26": bf.Graph.grid((side, side, side), neighbours=26),
    }


def model(graph, dtype):
    """Attractive couplings, weaker where there are more of them, and normal unary terms."""
    rng = np.random.default_rng(0)
    unary = rng.standard_normal((graph.n_variables, 2), dtype=np.float32).astype(dtype)
    factors = np.zeros((graph.n_factors, 2, 2), dtype)
    factors[:, 0, 0] = factors[:, 1, 1] = rng.uniform(0, 2 / len(graph.offsets), graph.n_factors)
    return bf.Potentials.from_flat(graph, unary.reshape(-1), factors.reshape(-1))


class Run:
    """Five sweeps with every state kept, and the gradient of a loss through them; memory is taken once."""

    def __init__(self, theta):
        self.engine = TreeReweighted(n_iter=5).engine(theta)
        state = self.engine.init()
        self.states = np.empty((6, *state.shape), state.dtype)
        self.states[0] = state
        self.d_state, self.d_theta = np.empty_like(state), self.engine.adjoint()
        labels = np.random.default_rng(1).integers(0, 2, theta.graph.n_variables)
        self.labeling = as_labeling(theta.graph, labels)

    def forward(self):
        """Return the marginals of the variables."""
        self.engine.record(self.states, 0)
        return self.engine.marginals(self.states[-1], factors=False)

    def gradient(self):
        """Add the gradient to what is there: what it is does not matter for the time it takes."""
        _, d_mu = UnivariateLogistic().value_and_dmu(self.forward(), self.labeling, None)
        self.d_state[:] = 0
        self.engine.marginals_vjp(self.states[-1], d_mu, self.d_state, self.d_theta)
        self.engine.unwind(self.states, 0, self.d_state, self.d_theta)


def sweeps(side, dtype, repeat):
    """Print ns per message of ten sweeps."""
    method, engines = TreeReweighted(n_iter=10), {}
    for name, graph in grids(side).items():
        engine = method.engine(model(graph, dtype))
        engines[name] = engine, engine.init()
    tasks = {name: lambda e=engine, s=state: e.sweeps(s, 0, 10) for name, (engine, state) in engines.items()}
    seconds = medians(tasks, repeat)
    each = {name: seconds[name] / 10 / engine.theta.graph.n_slots * 1e9 for name, (engine, _) in engines.items()}
    for name, ns in each.items():
        row = {"case": "sweep", "grid": name, "ns_per_message": round(ns, 3), "times": round(ns / each["2-D, 4"], 2)}
        print(json.dumps(row | {"bar": BARS.get(name), "dtype": dtype}), flush=True)


def gradients(side, dtype, repeat):
    """Print what a gradient costs over a forward pass with all states kept."""
    for name, graph in grids(side).items():
        run = Run(model(graph, dtype))
        found = medians({"forward": run.forward, "gradient": run.gradient}, repeat)
        row = {"case": "gradient", "grid": name, **{key: round(value, 3) for key, value in found.items()}}
        row |= {"times": round(found["gradient"] / found["forward"], 2), "bar": GRADIENT_BAR, "dtype": dtype}
        print(json.dumps(row), flush=True)


def linearity(sides, dtype, repeat):
    """Print ns and bytes per voxel of five sweeps on 6-connected cubes, the largest last."""
    for side in sides:
        theta = model(bf.Graph.grid((side, side, side)), dtype)
        engine = TreeReweighted(n_iter=5).engine(theta)
        assert isinstance(engine, ColoursEngine)
        state = engine.init()
        arrays = engine.u.nbytes + engine.tables.nbytes + state.nbytes + engine.planes.place.nbytes
        given = theta.unary_flat.nbytes + theta.factors_flat.nbytes
        seconds = medians({"run": lambda e=engine, s=state: e.sweeps(s, 0, 5)}, repeat)["run"]
        row = {"case": "cube", "side": side, "ns_per_voxel_and_sweep": round(seconds / 5 / side**3 * 1e9, 2)}
        print(json.dumps(row | {"bytes_per_voxel": round(arrays / side**3), "of_theta": round(given / side**3)}), flush=True)


def spheres(side):
    """Costs of both labels of a noisy picture of spheres."""
    rng = np.random.default_rng(0)
    centres, radii = rng.uniform(0, side, (12, 3)), rng.uniform(0.08, 0.2, 12) * side
    at = np.moveaxis(np.indices((side,) * 3), 0, -1)
    inside = np.zeros((side,) * 3, dtype=bool)
    for centre, radius in zip(centres, radii, strict=True):
        inside |= ((at - centre) ** 2).sum(axis=-1) < radius**2
    picture = inside + 0.8 * rng.standard_normal(inside.shape)
    return picture**2, (picture - 1) ** 2


def theirs(maxflow, cost0, cost1, weight):
    """Return the labels that PyMaxflow finds."""
    graph = maxflow.Graph[float](cost0.size, 3 * cost0.size)
    nodes = graph.add_grid_nodes(cost0.shape)
    structure = np.zeros((3, 3, 3))
    structure[1, 1, 2] = structure[1, 2, 1] = structure[2, 1, 1] = 1
    graph.add_grid_edges(nodes, weight, structure, symmetric=True)
    graph.add_grid_tedges(nodes, cost1, cost0)
    graph.maxflow()
    return graph.get_grid_segments(nodes).ravel()


def cuts(folder, side, repeat, weight=0.5):
    """Print seconds of cuts, ours and PyMaxflow's, from costs to labels."""
    sys.path.append(folder)
    import maxflow

    cost0, cost1 = spheres(side)
    graph = bf.Graph.grid(cost0.shape)
    unary = -np.stack([cost0.ravel(), cost1.ravel()], axis=1)
    theta = bf.Potentials(graph, unary, np.tile(weight * np.eye(2), (graph.n_factors, 1, 1)))
    found: dict[str, np.ndarray] = {}
    tasks = {
        "ours": lambda: found.update(ours=bf.find_map(theta, "graph_cut").labels),
        "pymaxflow": lambda: found.update(theirs=theirs(maxflow, cost0, cost1, weight)),
    }
    seconds = medians(tasks, repeat)
    row = {"case": "cut", "side": side, **{key: round(value, 3) for key, value in seconds.items()}}
    row |= {"times": round(seconds["ours"] / seconds["pymaxflow"], 2), "bar": CUT_BAR}
    print(json.dumps(row | {"labels_differ": int((found["ours"] != found["theirs"]).sum())}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--side", type=int, default=100)
    parser.add_argument("--sides", type=int, nargs="*", default=[64, 128, 256])
    parser.add_argument("--cut", help="folder where PyMaxflow is installed: measure cuts alone")
    parser.add_argument("--cut-side", type=int, default=128)
    options = parser.parse_args()
    if options.cut:
        return cuts(options.cut, options.cut_side, options.repeat)
    sweeps(options.side, options.dtype, options.repeat)
    gradients(options.side, options.dtype, options.repeat)
    linearity(options.sides, options.dtype, options.repeat)


if __name__ == "__main__":
    main()
