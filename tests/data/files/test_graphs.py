"""Graphs in files, on the command line and as features of neighbours."""

import json

import networkx
import numpy as np
import pytest

import backfield as bf
from backfield.data.formats.graphs import read_graph_lines, read_graph_npz, read_graphml
from backfield.data.neighbours import neighbour_means


def graphs(count=6, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for k in range(count):
        n = 5 + k
        edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
        edges = np.concatenate([edges, [[0, n - 1]]])
        labels = np.sort(rng.integers(0, 2, n))
        features = labels[:, None] + 0.5 * rng.normal(size=(n, 2))
        out.append((features, edges, rng.random((len(edges), 1)), labels))
    return out


def write_lines(path, made):
    rows = [
        {"nodes": x.tolist(), "edges": e.tolist(), "edge_features": d.tolist(), "labels": y.tolist(), "name": f"g{k}"}
        for k, (x, e, d, y) in enumerate(made)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))


def write_arrays(path, made):
    x, e, d, y = (np.concatenate(parts) for parts in zip(*made, strict=True))
    lengths = {"node_lengths": [len(each[0]) for each in made], "edge_lengths": [len(each[1]) for each in made]}
    np.savez(path, node_features=x, edges=e, edge_features=d, labels=y, **lengths)


def test_three_formats_hold_the_same(tmp_path):
    made = graphs(2)
    write_lines(tmp_path / "a.jsonl", made)
    write_arrays(tmp_path / "a.npz", made)
    for k, (x, e, d, y) in enumerate(made):
        graph = networkx.Graph()
        for i in range(len(x)):
            graph.add_node(i, a=float(x[i, 0]), b=float(x[i, 1]), label=int(y[i]))
        for (a, b), weight in zip(e.tolist(), d[:, 0].tolist(), strict=True):
            graph.add_edge(a, b, weight=weight)
        networkx.write_graphml(graph, tmp_path / f"{k}.graphml")
    lines, arrays = read_graph_lines(tmp_path / "a.jsonl"), read_graph_npz(tmp_path / "a.npz")
    drawn = [read_graphml(tmp_path / f"{k}.graphml")[0] for k in range(2)]
    for k, (x, e, d, y) in enumerate(made):
        for found in (lines[k], arrays[k], drawn[k]):
            np.testing.assert_allclose(found.features, x)
            np.testing.assert_array_equal(found.labels, y)
            assert {tuple(sorted(pair)) for pair in found.edges.tolist()} == {tuple(sorted(pair)) for pair in e.tolist()}
            assert found.edge_features.shape == d.shape


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: invalid JSON"),
        ("[]", "an object with nodes and edges"),
        ('{"nodes": [[1], [2]], "edges": [[0, 2]]}', r"edges join nodes 0 \.\. 1, received 0 \.\. 2"),
        ('{"nodes": [[1], [2]], "edges": [[1, 1]]}', "joins node 1 to itself"),
        ('{"nodes": [[1], [2, 3]], "edges": []}', "rectangular"),
        ('{"nodes": [["a"]], "edges": []}', "must hold numbers"),
        ('{"nodes": [[1], [2]], "edges": [[0, 1]], "labels": [0]}', "labels must be 2 integers"),
        ('{"nodes": [[1], [2]], "edges": [[0, 1]], "edge_features": [[1], [2]]}', r"shape \(1, D\)"),
        ('{"nodes": [[1], [1e999]], "edges": [[0, 1]]}', "row 1, column 0|invalid JSON"),
    ],
)
def test_bad_lines_are_refused(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(bf.InputError, match=message):
        read_graph_lines(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphml", "malformed XML"),
        ("<graphml></graphml>", "holds no graph"),
        ("<graphml><graph><node id='a'/></graph></graphml>", "declared as a number"),
        ("<graphml><graph><edge source='a' target='b'/></graph></graphml>", "which is not a node"),
        ("<!DOCTYPE x [<!ENTITY e 'a'>]><graphml/>", "entity"),
    ],
)
def test_bad_graphml_is_refused(tmp_path, text, message):
    (tmp_path / "a.graphml").write_text(text)
    with pytest.raises(bf.InputError, match=message):
        read_graphml(tmp_path / "a.graphml")


def test_lengths_must_add_up(tmp_path):
    write_arrays(tmp_path / "a.npz", graphs(2))
    arrays = dict(np.load(tmp_path / "a.npz")) | {"node_lengths": [1, 2]}
    np.savez(tmp_path / "b.npz", **arrays)
    with pytest.raises(bf.InputError, match="add up to 11"):
        read_graph_npz(tmp_path / "b.npz")


def test_neighbour_means():
    graph = bf.Graph(labels=[2] * 4, factors=[(0, 1), (0, 2)])
    features = np.array([[1.0, 0], [3, 1], [5, 2], [7, 3]])
    found = neighbour_means(graph, features, hops=2)
    np.testing.assert_allclose(found[:, 2:4], [[4, 1.5], [1, 0], [1, 0], [0, 0]])
    np.testing.assert_allclose(found[:, 4:], [[1, 0], [4, 1.5], [4, 1.5], [0, 0]])
    sample = bf.NeighbourMeans().fit_transform([bf.Sample(graph, features)])[0]
    np.testing.assert_allclose(sample.node_features, found[:, :4])
    with pytest.raises(bf.InputError, match="hops"):
        neighbour_means(graph, features, hops=0)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"node_features": np.zeros((3, 1))}, "node_features.* one entry for each of 2 variables, received 3"),
        ({"factor_features": np.zeros((2, 1))}, "factor_features.* one entry for each of 1 factors, received 2"),
        ({"observed": [0]}, "observed"),
        ({"weights": [1.0, 1.0, 1.0]}, "weights"),
        ({"factor_types": [0, 0]}, "factor_types"),
        ({"graph": "chain"}, "needs a backfield.Graph, received str"),
    ],
)
def test_a_sample_checks_lengths(part, message):
    good = {"graph": bf.Graph.chain(2, labels=2), "node_features": np.zeros((2, 1))}
    with pytest.raises(bf.InputError, match=message):
        bf.Sample(**good | part)


def test_errors_name_row_and_column():
    X = [np.zeros((3, 2)), np.zeros((3, 2))]
    X[1][2, 1] = np.nan
    with pytest.raises(bf.InputError, match=r"example 1: .*NaN in row 2, column 1"):
        bf.ChainCRF().fit(X, [[0, 1, 0]] * 2)
