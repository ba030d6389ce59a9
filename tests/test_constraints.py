"""Odd arguments are refused in one sentence, the same everywhere."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import backfield as bf
from backfield.constraints import check, choice, exactly, flag, numbers, optional, path, precision, real, shown, whole
from backfield.estimators._settings import FIT, PARAMETERS

#: Values that some caller passes one day; none of them may end in anything but an answer or one sentence.
ODD = [
    None, True, -1, 0, 2.5, 10**9, 2**70, 1e300, np.nan, np.inf, 1j, "", "x", "a\0b", b"x", [], [1, "a"], {"a": 1}, (),
    object(),
    lambda: 1, np.array([1, 2]), np.array("x"), np.array(2.5), np.ma.masked, iter([1]), 2**64 - 1, "linear", [[1], [1, 2]],
]  # fmt: skip
RNG = np.random.default_rng(0)
X = [RNG.normal(size=(4, 3, 2)) for _ in range(2)]
Y = [(x[..., 0] > 0).astype(int) for x in X]
GRAPH = bf.Graph.grid(2, 3, labels=2)
THETA = bf.Potentials(GRAPH, np.zeros((6, 2)), np.zeros((7, 2, 2)))
FAST = {"learner": "lbfgs(max_iter=1)"}
FIELD = FAST | {"inference": "tree_reweighted(n_iter=3)"}  # a field without trials on held-out labels
CALLS = {
    "Graph labels": lambda v: bf.Graph(v, [(0, 1)]),
    "Graph factors": lambda v: bf.Graph([2, 2], v),
    "grid labels": lambda v: bf.Graph.grid(3, 3, labels=v),
    "grid neighbours": lambda v: bf.Graph.grid(3, 3, neighbours=v),
    "grid offsets": lambda v: bf.Graph.grid(3, 3, offsets=v),
    "chain labels": lambda v: bf.Graph.chain(3, v),
    "from_edges": bf.Graph.from_edges,
    "from_regions": bf.Graph.from_regions,
    "connectivity": lambda v: bf.Graph.from_regions([[0, 1]], connectivity=v),
    "unary": lambda v: bf.Potentials(GRAPH, v, np.zeros((7, 2, 2))),
    "factors": lambda v: bf.Potentials(GRAPH, np.zeros((6, 2)), v),
    "groups": lambda v: bf.Potentials(GRAPH, np.zeros((6, 2)), groups=v),
    "graph of potentials": lambda v: bf.Potentials(v, np.zeros((6, 2))),
    "theta": lambda v: bf.infer(v, "exact"),
    "inference": lambda v: bf.infer(THETA, v),
    "observed": lambda v: bf.infer(THETA, "exact", observed=v),
    "dtype": lambda v: bf.infer(THETA, "tree_reweighted", dtype=v),
    "solver": lambda v: bf.find_map(THETA, v),
    "labels": lambda v: bf.value_and_gradient(THETA, v, loss="univariate_logistic", inference="exact"),
    "loss": lambda v: bf.value_and_gradient(THETA, [0] * 6, loss=v, inference="exact"),
    "gradient": lambda v: bf.value_and_gradient(
        THETA, [0] * 6, loss="univariate_logistic", inference="loopy_bp(n_iter=1)", gradient=v
    ),
    "weights": lambda v: bf.value_and_gradient(THETA, [0] * 6, loss="univariate_logistic", inference="exact", weights=v),
    "Sample": lambda v: bf.Sample(GRAPH, v),
    "Sample graph": lambda v: bf.Sample(v, np.zeros((6, 2))),
    "load": bf.load,
    "batch": bf.batch,
    "Tied": bf.Tied,
}


def _answer_or_sentence(call, value):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(value)
        except bf.InputError as error:
            sentence = str(error).strip()
        else:
            return
    assert "\n" not in sentence
    assert len(sentence) < 500


@pytest.mark.parametrize("name", CALLS)
def test_functions(name):
    for value in ODD:
        _answer_or_sentence(CALLS[name], value)


@pytest.mark.parametrize("parameter", sorted({*bf.GridCRF().get_params(deep=False)}))
def test_parameters_of_estimators(parameter):
    for value in ODD:
        _answer_or_sentence(lambda v: bf.GridCRF(**FIELD | {parameter: v}).fit(X, Y).predict(X), value)


@pytest.mark.parametrize("argument", [*FIT, "cluster"])
def test_arguments_of_fit(argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # "x" is a good name of a checkpoint
    for value in ODD:
        _answer_or_sentence(lambda v: bf.GridCRF(**FIELD).fit(X, Y, **{argument: v}), value)


@pytest.mark.parametrize("estimator", [bf.GridCRF, bf.ChainCRF, bf.GraphCRF])
def test_data(estimator):
    for value in ODD:
        for broken in (value, [value], [value] * 2):
            _answer_or_sentence(lambda v: estimator(**FIELD).fit(v, Y), broken)
            _answer_or_sentence(lambda v: estimator(**FIELD).fit(X, v), broken)


def test_the_sentence():
    with pytest.raises(bf.InputError, match=r"^n_labels must be an integer >= 1 and <= 100000 or None; received 2\.5\.$"):
        bf.GridCRF(n_labels=2.5).fit(X, Y)
    with pytest.raises(bf.InputError, match=r"dtype must be 'float32' or 'float64'; received 'float16'"):
        bf.GridCRF(dtype="float16").fit(X, Y)
    with pytest.raises(bf.InputError, match="callbacks must be a list of functions"):
        bf.GridCRF().fit(X, Y, callbacks=3)


def test_every_parameter_of_the_table_exists():
    assert set(PARAMETERS) <= set(bf.GridCRF().get_params(deep=False))


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (whole(1, 3), [1, 3, np.int8(2)], [0, 4, 1.0, True, np.True_, "1"]),
        (real(0), [0, 1.5, np.float32(2)], [-1, np.nan, np.inf, 1j, "0", True]),
        (exactly(-1), [-1], [-1.0, 1, None]),
        (optional, [None], [0, ""]),
        (flag, [True, np.False_], [0, "True"]),
        (choice("a", "b"), ["a"], ["c", 1]),
        (precision("float32"), ["float32", np.float32, np.dtype("float32")], ["float64", np.float64, "f4x", 1]),
        (numbers("x"), [[1, 2], np.ones(3), [[True]]], [1, "12", [[1], [1, 2]], ["a"], np.ma.masked, None]),
        (path, ["a"], ["", "a\0", 3, b"a"]),
    ],
)
def test_rules(rule, good, bad):
    assert all(rule.accepts(value) for value in good)
    assert not any(rule.accepts(value) for value in bad)


def test_messages_never_fail():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no")

    assert "Broken" in shown(Broken())
    assert len(shown("x" * 1000)) <= 60
    with pytest.raises(bf.InputError, match="owner: a must be True or False; received 1"):
        check({"a": 1}, {"a": (flag,)}, "owner: ")
    check({"b": 1}, {"a": (flag,)})


@pytest.mark.parametrize(
    ("room", "name", "field"),
    [
        ("gradients", "perturbation", "sides"),
        ("losses", "f_measure", "threshold"),
        ("oracles", "mlp", "optimizer"),
        ("learners", "ascent", "keep"),
        ("learners", "frank_wolfe", "sampling"),
        ("learners", "self_training", "targets"),
        ("inference", "loopy_bp", "schedule"),
        ("inference", "tree_reweighted", "family"),
        ("inference", "mean_field", "schedule"),
        ("map_solvers", "max_product", "schedule"),
        ("map_solvers", "icm", "init"),
        ("structures", "dense", "filter"),
        ("decoders", "map", "solver"),
    ],
)
@pytest.mark.parametrize("value", [{}, [1], np.array([1, 2]), np.zeros((0, 2)), None, 2.5, b"x"], ids=repr)
def test_choices_of_parts_refuse_what_cannot_be_looked_up(room, name, field, value):
    with pytest.raises(bf.InputError) as caught:
        bf.registry.lookup(room, name)(**{field: value})
    assert "received" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("x", [np.zeros(0), np.zeros((3, 0)), np.zeros((0, 2)), [], csr_matrix((0, 2))], ids=str)
def test_scaled_refuses_examples_without_features(x):
    fitted = bf.Scaled().fit([np.eye(2)])
    for call in (bf.Scaled().fit, fitted.transform):
        with pytest.raises(bf.InputError, match=r"example 0: Scaled needs .* features.*received"):
            call([x])


def test_a_ridge_that_overflows_is_refused():
    x = RNG.normal(size=(20, 3))
    with pytest.raises(bf.InputError, match=r"l2 must be 'auto' or a finite number >= 0 and <= 1e\+30"):
        bf.MultiLabelCRF(l2=1e308, **FAST).fit(x, (x > 0).astype(int))
    with pytest.raises(bf.InputError, match=r"l2 must be a finite number >= 0 and <= 1e\+30"):
        bf.MarkovNetwork(l2=1e308).fit({"a": list("xyxy"), "b": list("xxyy")})
