"""Cuts against PyMaxflow in the same run: python -m backfield_benchmarks.graph_cut [--pymaxflow DIR] [--json FILE].

The workload is w6: a noisy 300x200 image of two regions, Potts weight 1, and 1000 changes of one unary each.
PyMaxflow is GPL: it is measured where it is installed (``pip install --target DIR --no-deps PyMaxflow``), and nothing
else here uses it. Times are the best of several runs, alternating between both. Speed is for one core.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from backfield import Graph, Potentials, find_map
from backfield.map_solvers import CutProblem, GraphCut


def w6():
    """The model of bench/gen_models.py: costs of both labels (H, W), changed variables and by how much."""
    r = np.random.default_rng(6)
    height, width = 300, 200
    yy, xx = np.mgrid[:height, :width]
    mask = ((yy - 150) / 110.0) ** 2 + ((xx - 100) / 70.0) ** 2 < 1
    img = np.where(mask, 0.65, 0.35) + 0.25 * r.standard_normal((height, width))
    cost0, cost1 = (img - 0.35) ** 2 / (2 * 0.25**2), (img - 0.65) ** 2 / (2 * 0.25**2)
    flips = np.stack([r.integers(0, height, 1000), r.integers(0, width, 1000)], 1)
    return cost0, cost1, flips[:, 0] * width + flips[:, 1], r.normal(0, 2.0, 1000)


def clock(run, *args, **options):
    start = time.perf_counter()
    result = run(*args, **options)
    return 1e3 * (time.perf_counter() - start), result


class Pymaxflow:
    """Source capacity is the cost of label 1, which is the sink's side."""

    def __init__(self, maxflow, cost0, cost1, weight):
        self.graph = maxflow.Graph[float](cost0.size, 2 * cost0.size)
        self.nodes = self.graph.add_grid_nodes(cost0.shape)
        self.graph.add_grid_edges(self.nodes, weight)
        self.graph.add_grid_tedges(self.nodes, cost1, cost0)

    def solve(self):
        self.value = self.graph.maxflow()
        return self.graph.get_grid_segments(self.nodes).ravel()

    def add(self, i, delta):
        """Add to theta_i(1) - theta_i(0)."""
        self.graph.add_tedge(i, max(-delta, 0), max(delta, 0))
        self.graph.mark_node(i)

    def one_by_one(self, nodes, deltas):
        labels = []
        for i, delta in zip(nodes.tolist(), deltas.tolist(), strict=True):
            self.add(i, delta)
            self.graph.maxflow(reuse_trees=True)
            labels.append(self.graph.get_segment(i))
            self.add(i, -delta)
        return np.array(labels)

    def min_marginals(self, nodes, bound):
        """Cut with the other label of each node: ``bound`` decides it against all arcs."""
        values = []
        for i in nodes.tolist():
            delta = bound if self.graph.get_segment(i) == 0 else -bound
            self.add(i, delta)
            values.append(self.graph.maxflow(reuse_trees=True))
            self.add(i, -delta)
        return np.array(values)


def measure_w6(maxflow, weight, repeat):
    cost0, cost1, nodes, deltas = w6()
    grid = Graph.grid(*cost0.shape)
    unary = -np.stack([cost0.ravel(), cost1.ravel()], axis=1)
    models = {
        "grid": Potentials(grid, unary, np.tile(weight * np.eye(2), (grid.n_factors, 1, 1))),
        "general": Potentials(
            Graph.from_edges(grid.factors, grid.n_variables),
            unary,
            np.tile(weight * np.eye(2), (grid.n_factors, 1, 1)),
        ),
    }
    rows: dict[str, list[float]] = {}

    def keep(name, milliseconds):
        rows.setdefault(name, []).append(milliseconds)

    for _ in range(repeat):
        for kind, theta in models.items():
            ours, fresh = clock(GraphCut().solve, theta)
            keep(f"fresh cut, {kind}", ours)
            problem = CutProblem(theta)
            keep(f"  of it the flow, {kind}", clock(problem.solve)[0])
            ours, labels = clock(problem.solve_many, nodes, deltas)
            keep(f"1000 cuts, {kind}", ours)
            ours, changes = clock(problem.solve_many, nodes, deltas, returns="changed")
            keep(f"1000 cuts and what changed, {kind}", ours)
            ours, marginals = clock(problem.min_marginals, nodes)
            keep(f"1000 min-marginals, {kind}", ours)
            assert (problem.labels == fresh.labels).all() and (changes.labels == labels).all()
        if maxflow is not None:
            theirs, other = clock(Pymaxflow, maxflow, cost0, cost1, weight)
            more, their_labels = clock(other.solve)
            keep("fresh cut, PyMaxflow", theirs + more)
            assert (their_labels == fresh.labels).all()
            theirs, again = clock(other.one_by_one, nodes, deltas)
            keep("1000 cuts, PyMaxflow", theirs)
            assert (again == labels).all()
            bound = 2 * (4 * weight + np.abs(cost0 - cost1).max())
            keep("1000 min-marginals, PyMaxflow", clock(other.min_marginals, nodes, bound)[0])
        problem = CutProblem(models["grid"])
        noise = [unary + np.random.default_rng(k).gumbel(size=unary.shape) for k in range(4)]
        problem.solve()
        keep("cut with fresh Gumbel noise, dynamic", clock(renew, problem, noise)[0] / 4)
        keep("cut with fresh Gumbel noise, rebuilt", clock(rebuild, models["grid"], noise)[0] / 4)
    spot_check(models["grid"], nodes, marginals)
    return {name: min(times) for name, times in rows.items()}


def renew(problem, noise):
    for unary in noise:
        problem.set_unary(unary)
        problem.resolve()


def rebuild(theta, noise):
    for unary in noise:
        CutProblem(Potentials(theta.graph, unary, theta.factors)).solve()


def spot_check(theta, nodes, marginals):
    """Min-marginals against cuts with the label forbidden."""
    for k in range(0, 1000, 100):
        for label in range(2):
            unary = theta.unary.copy()
            unary[nodes[k], 1 - label] = -np.inf
            best = GraphCut().solve(Potentials(theta.graph, unary, theta.factors)).value
            assert abs(best - marginals[k, label]) < 1e-7, (best, marginals[k, label])


def expansion():
    """Value and time on an 8-label Potts image of 60x80."""
    rng = np.random.default_rng(2)
    graph = Graph.grid(60, 80, labels=8)
    theta = Potentials(graph, rng.normal(size=(4800, 8)), np.tile(np.eye(8), (graph.n_factors, 1, 1)))
    rows = {}
    for name in ("alpha_expansion", "alpha_beta_swap", "icm", "max_product"):
        find_map(theta, name)
        rows[name] = clock(find_map, theta, name)
    return {name: {"ms": ms, "value": run.value} for name, (ms, run) in rows.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pymaxflow", help="folder where PyMaxflow is installed")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--weights", type=float, nargs="*", default=[1.0], help="Potts weights; w6 has 1")
    parser.add_argument("--json", help="file to write")
    args = parser.parse_args()
    if args.pymaxflow:
        sys.path.append(args.pymaxflow)
    try:
        import maxflow
    except ImportError:
        maxflow = None
        print("PyMaxflow is not installed: only our own figures")
    out: dict[str, Any] = {}
    for weight in args.weights:
        measure_w6(maxflow, weight, 1)
        out[f"w6, weight {weight:g}"] = times = measure_w6(maxflow, weight, args.repeat)
        print(f"w6, weight {weight:g}: milliseconds, ratio to PyMaxflow")
        for name, ms in sorted(times.items()):
            their = times.get(name.split(",")[0].replace(" and what changed", "") + ", PyMaxflow")
            print(f"  {name:42s} {ms:8.2f}" + (f"  {ms / their:5.2f}" if their and "flow, " not in name else ""))
    out["expansion"] = expansion()
    for name, row in out["expansion"].items():
        print(f"  8 labels, 60x80: {name:20s} {row['ms']:8.1f} ms, value {row['value']:.2f}")
    if args.json:
        Path(args.json).write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
