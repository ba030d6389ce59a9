"""Markov networks of tables: gradients, structure, missing values, predictions against enumeration."""

import numpy as np
import pytest
from sklearn.base import clone

import backfield as bf
from backfield.models import MarkovNetwork
from backfield.models.expectation import Expectation
from backfield.models.structure import chow_liu, mutual_information
from backfield.models.table_objectives import Likelihood, Pseudolikelihood, Rows, exact_products

pytestmark = pytest.mark.usefixtures("processor_time")


def tree_model(seed=0, d=6):
    rng = np.random.default_rng(seed)
    states = {f"c{i}": ["a", "b", "c"][: rng.integers(2, 4)] for i in range(d)}
    conditionals = {"c0": rng.dirichlet(np.ones(len(states["c0"])) * 3)}
    edges = []
    for i in range(1, d):
        j = int(rng.integers(i))
        edges.append((f"c{j}", f"c{i}"))
        conditionals[f"c{i}"] = ([f"c{j}"], rng.dirichlet(np.ones(len(states[f"c{i}"])) * 0.4, size=len(states[f"c{j}"])))
    return bf.Model(states, conditionals=conditionals), {tuple(sorted(edge)) for edge in edges}


def table(model, n, seed=1, missing=0.0):
    rows = model.sample(n, seed=seed)
    rng = np.random.default_rng(seed)
    return {name: [None if rng.random() < missing else value for value in rows[name]] for name in model.names}


def codes_of(data, model):
    return np.array([[-1 if v is None else model.states[n].index(v) for v in data[n]] for n in model.names]).T


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_gradients(missing):
    model, _ = tree_model()
    codes = codes_of(table(model, 50, missing=missing), model)
    graph = bf.Graph(model.variables.labels, [(0, 1), (1, 2), (0, 2), (2, 3)])
    rng = np.random.default_rng(0)
    mean = rng.dirichlet(np.ones(int(graph.layout.var_ptr[-1] + graph.layout.table_ptr[-1])))
    losses = [
        Pseudolikelihood(codes, graph),
        Likelihood(mean, graph, "exact", exact_products(graph, "exact")),
        Likelihood(mean, graph, "brute_force", None),
        Rows(codes[:10], graph, "univariate_logistic", "loopy_bp(n_iter=5)", 0.5, 0),
        Rows(codes[:10], graph, "surrogate_likelihood", "brute_force", 0.5, 0),
    ]
    for loss in losses:
        w = rng.normal(size=int(graph.layout.var_ptr[-1] + graph.layout.table_ptr[-1]))
        direction = rng.normal(size=len(w))
        _, gradient = loss(w)
        ahead, back = (loss(w + s * direction)[0] for s in (1e-6, -1e-6))
        assert (ahead - back) / 2e-6 == pytest.approx(gradient @ direction, rel=1e-6)


@pytest.mark.parametrize("inference", ["exact", "brute_force"])
def test_expected_indicators_are_those_of_enumeration(inference):
    model, _ = tree_model()
    graph = bf.Graph(model.variables.labels, [(0, 1), (1, 2), (0, 2), (2, 3)])
    codes = codes_of(table(model, 30, missing=0.3), model)
    w = np.random.default_rng(1).normal(size=int(graph.layout.var_ptr[-1] + graph.layout.table_ptr[-1]))
    cut = int(graph.layout.var_ptr[-1])
    theta = bf.Potentials.from_flat(graph, w[:cut].copy(), w[cut:].copy())
    runs = [bf.infer(theta, "brute_force", observed=row) for row in codes]
    value, mean = Expectation(codes, graph, inference, exact_products(graph, inference))(w)
    assert value == pytest.approx(np.mean([run.log_partition for run in runs]))
    np.testing.assert_allclose(mean, np.mean([run.marginals.vector() for run in runs], axis=0), atol=1e-10)


def test_the_likelihood_of_missing_values_is_that_of_the_known_ones():
    """Frequencies over the rows that have a pair need not be those of any distribution: the loss had no minimum."""
    rng = np.random.default_rng(0)
    a = rng.choice(["x", "y"], 200)
    data = {"a": a, "b": np.where(rng.random(200) < 0.8, a, rng.choice(["x", "y", "z"], 200)).astype(object)}
    data["b"][::5] = None
    network = MarkovNetwork(edges=[("a", "b")], objective="likelihood", l2=0.0, max_seconds=10).fit(data)
    assert network.value_ == pytest.approx(-network.score(data), abs=1e-6)
    known = [(p, q) for p, q in zip(data["a"], data["b"], strict=True)]
    best = np.mean([  # a and b given a have likelihoods of their own
        np.log(np.mean(a == p)) + (0 if q is None else np.log(
            sum(k == (p, q) for k in known) / sum(k[0] == p and k[1] is not None for k in known))) for p, q in known
    ])  # fmt: skip
    assert network.score(data) == pytest.approx(best, abs=1e-3)


def test_hidden_columns_and_tied_tables():
    truth = bf.Model(
        {"cause": 2, "p": ["n", "y"], "q": ["n", "y"], "r": ["n", "y"]},
        conditionals={"cause": [0.6, 0.4], **{name: (["cause"], [[0.9, 0.1], [0.2, 0.8]]) for name in "pqr"}},
    )
    rows = truth.sample(3000, seed=0)
    data = {name: list(rows[name]) for name in "pqr"}
    edges = [("cause", name) for name in "pqr"]
    given = {"edges": edges, "hidden": {"cause": 2}, "objective": "likelihood", "max_seconds": 10}
    network = MarkovNetwork(**given).fit(data)
    alone = MarkovNetwork(edges=[], objective="likelihood", max_seconds=5).fit(data)
    wanted = np.mean([truth.log_probability({n: data[n][k] for n in "pqr"}) for k in range(3000)])
    assert alone.score(data) + 0.1 < network.score(data) and network.score(data) == pytest.approx(wanted, abs=0.01)
    assert network.predict_proba(data, "cause")["cause"].shape == (3000, 2)
    tied = MarkovNetwork(**given, tied=[edges, ["p", "q", "r"]]).fit(data).model_.theta
    np.testing.assert_array_equal(tied.factors[0].T if tied.graph.factors[0][0] != 3 else tied.factors[0], tied.factors[1].T)
    np.testing.assert_array_equal(tied.unary[0], tied.unary[2])


def test_training_for_the_queries():
    model, edges = tree_model(5)
    data = table(model, 400, missing=0.1)
    network = MarkovNetwork(
        edges=sorted(edges), objective="univariate_logistic", inference="loopy_bp(n_iter=8)", max_seconds=6
    ).fit(data)
    alone = MarkovNetwork(edges=[], max_seconds=2).fit(data)
    test = table(model, 300, seed=8)
    error = [np.mean([list(net.predict(test, n)[n])[k] != test[n][k] for n in model.names for k in range(300)])
             for net in (network, alone)]  # fmt: skip
    assert error[0] < error[1]


def test_the_tree_is_found_again():
    model, edges = tree_model()
    data = table(model, 4000, missing=0.1)
    tree = MarkovNetwork(edges="chow_liu", max_seconds=5).fit(data)
    assert {tuple(sorted(edge)) for edge in tree.edges_} == edges
    network = MarkovNetwork(edges="lasso", max_seconds=5).fit(data)
    found = {tuple(sorted(edge)) for edge in network.edges_}
    assert edges <= found and len(found) < 9  # of 15
    assert MarkovNetwork(edges="lasso", alpha=10.0, max_seconds=5).fit(data).edges_ == []


@pytest.mark.parametrize("objective", ["pseudolikelihood", "likelihood"])
def test_fits_come_near_the_model_and_beat_independence(objective):
    model, edges = tree_model(3)
    data, test = table(model, 4000, missing=0.1), table(model, 1000, seed=9)
    network = MarkovNetwork(edges=sorted(edges), objective=objective, max_seconds=10).fit(data)
    alone = MarkovNetwork(edges=[], objective=objective, max_seconds=10).fit(data)
    truth = np.mean([model.log_probability({n: test[n][k] for n in model.names}) for k in range(1000)])
    assert alone.score(test) + 0.1 < network.score(test) <= truth + 0.01
    assert network.score(test) > truth - 0.05


def test_predictions_are_those_of_the_model():
    model, edges = tree_model(4)
    data = table(model, 500, missing=0.2)
    network = MarkovNetwork(edges=sorted(edges), max_seconds=3).fit(data)
    some = {name: data[name][:20] for name in model.names}
    found = network.predict_proba(some, "c2")["c2"]
    for k in range(20):
        given = {n: some[n][k] for n in model.names if n != "c2" and some[n][k] is not None}
        np.testing.assert_allclose(found[k], network.model_.table("c2", given).values, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    full = network.impute(some)
    for name in model.names:
        for old, new in zip(some[name], list(full[name]), strict=True):
            assert new is not None and (old is None or new == old)
    assert list(network.predict(some, "c2")["c2"]) == [network.states_["c2"][x] for x in found.argmax(axis=1)]


def test_arrays_and_parameters():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, size=(300, 1))
    data = np.concatenate([x, (x + (rng.random((300, 1)) < 0.1)) % 2, rng.integers(0, 3, size=(300, 1))], axis=1)
    network = clone(MarkovNetwork(max_seconds=3)).fit(data)
    assert ("x0", "x1") in network.edges_ and network.get_params()["edges"] == "chow_liu"
    partial = data[:5].astype(object)
    partial[:, 1] = None
    assert (network.predict_proba(partial)["x1"].argmax(axis=1) == data[:5, 0]).all()


def test_frames():
    pandas = pytest.importorskip("pandas")
    model, _ = tree_model()
    frame = pandas.DataFrame(table(model, 300, missing=0.1))
    network = MarkovNetwork(max_seconds=3).fit(frame)
    assert isinstance(network.impute(frame), pandas.DataFrame) and not network.impute(frame).isna().any().any()
    some = frame.iloc[[7, 3]][["c2", "c0", "c1", "c3", "c4", "c5"]]
    filled = network.impute(some)
    assert list(filled.index) == [7, 3] and list(filled.columns) == list(some.columns)
    assert list(network.predict(some, "c1").index) == [7, 3]
    frame["c0"] = pandas.Categorical(frame["c0"], categories=["c", "b", "a"])
    network = MarkovNetwork(max_seconds=3).fit(frame)
    assert network.states_["c0"] == ["c", "b", "a"]
    numbered = pandas.DataFrame(np.array([[0, 1], [1, 0]] * 10))
    assert list(MarkovNetwork(max_seconds=1).fit(numbered).predict(numbered[:1], 1).columns) == ["1"]


def test_mutual_information():
    assert mutual_information(np.eye(2)) == pytest.approx(np.log(2))
    assert mutual_information(np.ones((2, 3))) == pytest.approx(0)
    assert len(chow_liu(np.zeros((3, 4), dtype=int), [1, 1, 1, 1])) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: MarkovNetwork(edges="tree").fit(d), "'chow_liu', 'lasso' or a list"),
        (lambda d: MarkovNetwork(edges=[("c0", "c9")]).fit(d), "there is no column 'c9'; known: c0"),
        (lambda d: MarkovNetwork(edges=[("c0", "c0")]).fit(d), "joins a column with itself"),
        (lambda d: MarkovNetwork(edges=["c0"]).fit(d), "an edge must be a pair"),
        (lambda d: MarkovNetwork(objective="x").fit(d), "there is no 'x'"),
        (lambda d: MarkovNetwork().fit({"a": [[1], [2]]}), "a category is a string"),
        (lambda d: MarkovNetwork().fit({"a": "text"}), "must be a list of values"),
        (lambda d: MarkovNetwork().fit({"1": [1, 2], 1: [1, 2]}), "two columns have the name '1'"),
        (lambda d: MarkovNetwork(hidden={"h": 2}).fit(d), "hidden columns need edges"),
        (lambda d: MarkovNetwork(hidden={"c0": 2}, edges=[], objective="likelihood").fit(d), "'c0' is in the table"),
        (lambda d: MarkovNetwork(edges=[], tied=[["c0"]]).fit(d), "two or more columns or edges"),
        (lambda d: MarkovNetwork(edges=[], tied=[[("c0", "c1"), ("c1", "c2")]]).fit(d), "not among the edges"),
        (lambda d: MarkovNetwork(edges=[], tied=[["c0", "c0"]]).fit(d), "names 'c0' twice"),
        (lambda d: MarkovNetwork().fit({"a": [None, None]}), "'a' has no value at all"),
        (lambda d: MarkovNetwork().fit({"a": range(500)}), "500 different values"),
        (lambda d: MarkovNetwork().fit({"a": [1], "b": [1, 2]}), "of one length"),
        (lambda d: MarkovNetwork().fit([1, 2]), "a table is a DataFrame"),
        (lambda d: MarkovNetwork(max_seconds=1).fit(d).predict_proba({"c0": ["z"]}, "c1"), "'z' was never seen"),
        (lambda d: MarkovNetwork(max_seconds=1).fit(d).predict_proba({"d0": ["a"]}, "c1"), "no column 'd0'"),
    ],
)
def test_sentences(call, message):
    model, _ = tree_model()
    with pytest.raises(bf.InputError) as caught:
        call(table(model, 100))
    assert message in str(caught.value)


def test_values_without_an_order_are_categories_too():
    values = [1j, 2j, 1j, 2j, 1j]
    network = bf.MarkovNetwork(max_seconds=1.0).fit({"a": values, "b": list("xyxyx")})
    assert network.states_["a"] == [1j, 2j]
    assert network.predict_proba({"a": [1j], "b": [None]}, "b")["b"][0].argmax() == 0
