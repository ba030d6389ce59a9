"""Bad input: one InputError each that says what was received, what is needed and where; never a crash or a silent NaN."""

import warnings

import numpy as np
import pytest

import backfield as bf
from backfield import Graph, Potentials
from backfield.inference import MeanField, TreeReweighted
from backfield.registry import get, names

CHAIN, GRID, MIXED = Graph.chain(3), Graph.grid(3, 3), Graph([2, 3, 2], [(0, 1), (0, 1, 2)])
INF = np.inf


def zeros(graph):
    return Potentials(
        graph,
        [np.zeros(count) for count in graph.labels],
        [np.zeros([graph.labels[i] for i in scope]) for scope in graph.factors],
    )


def unary_of(**entries):
    table = np.zeros((3, 2))
    for key, value in entries.items():
        table[int(key[1]), int(key[2])] = value
    return table


TABLES = np.zeros((2, 2, 2))
MIXED_UNARY = [np.zeros(2), np.zeros(3), np.zeros(2)]
MIXED_TABLES = [np.zeros((2, 3)), np.zeros((2, 3, 2))]

GRAPHS = {
    "nothing": (lambda: Graph([]), "at least one label count"),
    "None": (lambda: Graph(None), "at least one label count"),
    "a number": (lambda: Graph(3), "at least one label count"),
    "2-d labels": (lambda: Graph([[2, 2]]), r"at least one label count, received shape \(1, 2\)"),
    "ragged labels": (lambda: Graph([[2], [2, 3]]), "one label count per variable"),
    "no label": (lambda: Graph([2, 0]), "variable 1 has 0 labels"),
    "negative": (lambda: Graph([2, -1]), "variable 1 has -1 labels"),
    "too many": (lambda: Graph(np.array([2, 2**63], dtype=np.uint64)), "variable 1 has 9223372036854775808 labels"),
    "huge": (lambda: Graph([10**30]), "label counts must be integers"),
    "float labels": (lambda: Graph([2.0, 2.0]), "integers, received dtype float64"),
    "text labels": (lambda: Graph(["2"]), "integers, received dtype"),
    "boolean labels": (lambda: Graph([True]), "integers, received dtype bool"),
    "twice": (lambda: Graph([2, 2], [(0, 0)]), "factor 0 names variable 0 twice"),
    "twice of three": (lambda: Graph([2] * 3, [(0, 1), (2, 1, 2)]), "factor 1 names variable 2 twice"),
    "one variable": (lambda: Graph([2, 2], [(0, 1), (0,)]), r"factor 1 is \(0,\); a factor names at least two variables"),
    "no variable": (lambda: Graph([2, 2], [()]), "factor 0 is .* at least two"),
    "out of range": (lambda: Graph([2, 2], [(0, 2)]), r"factor 0 names variable 2, but variables are 0 \.\. 1"),
    "below range": (lambda: Graph([2, 2], [(0, -1)]), "factor 0 names variable -1"),
    "huge variable": (lambda: Graph([2, 2], [(0, 10**30)]), "factor 0 is .* integers"),
    "float scope": (lambda: Graph([2, 2], [(0.0, 1.0)]), "factor 0 is .* integers"),
    "text scope": (lambda: Graph([2, 2], ["01"]), "factor 0 is '01'"),
    "None in a scope": (lambda: Graph([2, 2], [(0, None)]), "factor 0 is .* integers"),
    "ragged scope": (lambda: Graph([2, 2], [([0], [0, 1])]), "factor 0 is .* integers"),
    "flat scopes": (lambda: Graph([2, 2], [0, 1]), "factor 0 is 0"),
    "factors a number": (lambda: Graph([2, 2], 3), "factors must list the variables of each factor, received 3"),
    "factors None": (lambda: Graph([2, 2], None), "factors must list"),
    "chain of none": (lambda: Graph.chain(0), "length must be a positive integer, received 0"),
    "chain of 1.5": (lambda: Graph.chain(1.5), "length must be a positive integer, received 1.5"),
    "chain labels": (lambda: Graph.chain(3, labels=[2, 2]), "received 2 label counts for 3 variables"),
    "chain labels None": (lambda: Graph.chain(3, labels=None), "label counts must be integers"),
    "grid of none": (lambda: Graph.grid(0, 3), "rows must be a positive integer, received 0"),
    "grid of -3": (lambda: Graph.grid(3, -3), "columns must be a positive integer, received -3"),
    "grid of True": (lambda: Graph.grid(True, 3), "rows must be a positive integer, received True"),
    "grid neighbours": (lambda: Graph.grid(3, 3, neighbours=6), "4 or 8 neighbours, received 6"),
    "edges of three": (lambda: Graph.from_edges([(0, 1, 2)]), r"shape \(E, 2\), received \(1, 3\)"),
    "ragged edges": (lambda: Graph.from_edges([(0, 1), (0, 1, 2)]), r"\(E, 2\) array"),
    "edges out of range": (lambda: Graph.from_edges([(0, 1), (0, 5)], n_variables=3), "factor 1 names variable 5"),
    "loop": (lambda: Graph.from_edges([(1, 1)]), "factor 0 names variable 1 twice"),
    "float edges": (lambda: Graph.from_edges([(0.0, 1.0)]), "integers, received dtype float64"),
    "no edges": (lambda: Graph.from_edges([]), "n_variables must be a positive integer, received 0"),
    "edges None": (lambda: Graph.from_edges(None), r"shape \(E, 2\)"),
    "edges labels None": (lambda: Graph.from_edges([(0, 1)], labels=None), "label counts must be integers"),
    "no networkx": (lambda: Graph.from_networkx(3), "needs a networkx graph, received int"),
    "regions with a hole": (lambda: Graph.from_regions([[0, 2]]), r"every number 0 \.\. n-1"),
    "negative regions": (lambda: Graph.from_regions([[0, -1]]), r"every number 0 \.\. n-1"),
    "float regions": (lambda: Graph.from_regions([[0.0, 1.0]]), "integers, received float64"),
    "flat regions": (lambda: Graph.from_regions([0, 1]), r"\(H, W\) array"),
    "ragged regions": (lambda: Graph.from_regions([[0, 1], [1]]), "rows of different lengths"),
    "connectivity": (lambda: Graph.from_regions([[0, 1]], connectivity=3), "connectivity is 1 .* received 3"),
    "empty batch": (lambda: bf.batch([]), "at least one"),
    "batch of None": (lambda: bf.batch(None), "list of Potentials"),
    "batch of numbers": (lambda: bf.batch([1, 2]), "list of Potentials"),
}

POTENTIALS = {
    "no graph": (lambda: Potentials([2, 2], [[0, 0]]), "need a Graph, received list"),
    "None": (lambda: Potentials(CHAIN, None, None), "unary must hold real numbers, received dtype object"),
    "wrong shape": (lambda: Potentials(CHAIN, np.zeros((2, 2)), TABLES), r"must have shape \(3, 2\), received \(2, 2\)"),
    "wrong tables": (lambda: Potentials(CHAIN, unary_of(), np.zeros((2, 2, 3))), r"factors must have shape \(2, 2, 2\)"),
    "no tables": (lambda: Potentials(CHAIN, unary_of()), r"factors must have shape \(2, 2, 2\), received \(0,\)"),
    "too many tables": (lambda: Potentials(Graph([2]), [[0, 0]], TABLES), r"factors must have shape \(0, 2, 2\)"),
    "ragged rows": (lambda: Potentials(CHAIN, [[0, 0], [0], [0, 0]], TABLES), "unary must hold tables of one shape"),
    "text": (lambda: Potentials(CHAIN, [["a", "b"]] * 3, TABLES), "unary must hold real numbers, received dtype <U1"),
    "complex": (
        lambda: Potentials(CHAIN, unary_of(), TABLES + 0j),
        "factors must hold real numbers, received dtype complex",
    ),
    "object": (lambda: Potentials(CHAIN, unary_of().astype(object), TABLES), "real numbers, received dtype object"),
    "boolean": (lambda: Potentials(CHAIN, unary_of() == 0, TABLES), "real numbers, received dtype bool"),
    "dates": (lambda: Potentials(CHAIN, np.zeros((3, 2), "M8[s]"), TABLES), "real numbers, received dtype datetime64"),
    "NaN": (lambda: Potentials(CHAIN, unary_of(t11=np.nan), TABLES), r"unary\[1\] holds nan; potentials are finite or -inf"),
    "+inf": (lambda: Potentials(CHAIN, unary_of(t20=INF), TABLES), r"unary\[2\] holds inf"),
    "NaN in a table": (lambda: Potentials(CHAIN, unary_of(), TABLES + [[[0]], [[np.nan]]]), r"factors\[1\] holds nan"),
    "+inf in a table": (lambda: Potentials(CHAIN, unary_of(), TABLES + [[[0]], [[INF]]]), r"factors\[1\] holds inf"),
    "NaN, mixed": (lambda: Potentials(MIXED, [[0, 0], [0, np.nan, 0], [0, 0]], MIXED_TABLES), r"unary\[1\] holds nan"),
    "NaN table, mixed": (
        lambda: Potentials(MIXED, MIXED_UNARY, [MIXED_TABLES[0], MIXED_TABLES[1] + np.nan]),
        r"factors\[1\] holds nan",
    ),
    "a number, mixed": (lambda: Potentials(MIXED, 3, MIXED_TABLES), "unary must be a list of 3 arrays, received int"),
    "one table, mixed": (lambda: Potentials(MIXED, MIXED_UNARY, MIXED_TABLES[:1]), "factors must hold 2 tables, received 1"),
    "wrong size, mixed": (lambda: Potentials(MIXED, [[0, 0]] * 3, MIXED_TABLES), r"unary\[1\] must have shape \(3,\)"),
    "turned, mixed": (
        lambda: Potentials(MIXED, MIXED_UNARY, [np.zeros((3, 2)), MIXED_TABLES[1]]),
        r"factors\[0\] must have shape \(2, 3\), received \(3, 2\)",
    ),
    "wrong vector": (lambda: zeros(CHAIN).like(np.zeros(3)), r"need 14 numbers, received shape \(3,\)"),
}

LOOPY, TREES = "loopy_bp({})".format, "tree_reweighted({})".format
SETTINGS = {
    **{f"rho={rho}": (TREES(f"rho={rho}"), "rho must be") for rho in ("0", "-1", "None", "True", "1j", "'tree'", "{}")},
    **{f"rho={rho}": (TREES(f"rho={rho}"), "rho must be") for rho in ("[]", "[1, 1, 1]", "[[1, 1]]", "[1, 0]", "[1, 'a']")},
    "ragged rho": (TREES("rho=[[1], [1, 2]]"), r"one number or one per factor \(2\); received \[\[1\], \[1, 2\]\]"),
    "rho NaN": (TreeReweighted(rho=float("nan")), "rho must be positive"),
    "rho inf": (TreeReweighted(rho=float("inf")), "rho must be positive"),
    "rho too small": (TREES("rho=1e-320"), "rho must be positive, from 1e-06 to 1e"),
    "rho too large": (TREES("rho=1e300"), "rho must be positive, from 1e-06 to 1e"),
    **{f"damping={d}": (LOOPY(f"damping={d}"), r"damping must be in \[0, 1\)") for d in ("1", "-0.1", "'a'", "None", "[0]")},
    **{f"n_iter={n}": (LOOPY(f"n_iter={n}"), "n_iter must be an integer") for n in ("-1", "1.5", "None", "True", "'3'")},
    **{f"tol={tol}": (LOOPY(f"tol={tol}"), "tol must be None or a positive") for tol in ("0", "-1", "'a'", "True", "1e999")},
    **{f"order={o}": (LOOPY(f"order={o}"), "permutation of the 4 slots") for o in ("[0]", "[0, 0, 1, 2]", "[0.0, 1, 2, 3]")},
    **{
        f"order={o}": (LOOPY(f"order={o}"), "permutation of the 4 slots")
        for o in ("3", "'abcd'", "[[0], [1, 2]]", "[0, 1, 2, 4]")
    },
    **{
        f"mean_field(order={o})": (f"mean_field(order={o})", "permutation of the 3 variables")
        for o in ("[0]", "[[0], [1, 2]]")
    },
    **{f"schedule={s}": (LOOPY(f"schedule={s}"), "schedule must be one of") for s in ("'foo'", "None", "[]", "3")},
    "mean field schedule": ("mean_field(schedule='monotonic')", "schedule must be one of"),
    "lattice schedule": (LOOPY("schedule='lattice'"), "needs a graph made by Graph.grid"),
    "mean field lattice": ("mean_field(schedule='lattice')", "needs a graph made by Graph.grid"),
    **{f"family={f}": (LOOPY(f"family={f}"), "family must be one of") for f in ("'foo'", "None", "[]")},
    "lattice family": (LOOPY("family='lattice'"), "family='lattice' needs a binary grid"),
    "copies family": (LOOPY("family='copies'"), "8 or more copies of one binary pairwise graph"),
    "mean field family": ("mean_field(family='lattice')", "needs a binary 4-connected grid"),
    "memory": ("exact(memory=0)", "memory must be an integer >= 1"),
    "max_states": ("brute_force(max_states=7)", "would enumerate 8 labelings, but max_states=7; use 'exact'"),
    "n_samples": ("gibbs(n_samples=0)", "n_samples must be an integer >= 1"),
    "seed": ("gibbs(seed=-1)", "seed must be an integer >= 0"),
    "unknown": ("loopy", "did you mean 'loopy_bp'"),
    "no spec": (None, "received NoneType where a part of inference"),
}

OTHER_GRAPHS = {
    "lattice and damping": (GRID, "loopy_bp(family='lattice', damping=0.1)", "one rho and no damping"),
    "lattice and order": (GRID, f"loopy_bp(family='lattice', order={list(range(24))})", "in the lattice schedule"),
    "lattice and sequential": (GRID, "loopy_bp(family='lattice', schedule='sequential')", "in the lattice schedule"),
    "lattice and rho": (GRID, f"tree_reweighted(family='lattice', rho={[0.5] * 11 + [1.0]})", "one rho"),
    "lattice of 3 labels": (Graph.grid(3, 3, labels=3), "loopy_bp(family='lattice')", "a binary grid"),
    "pairwise and mixed": (MIXED, "loopy_bp(family='pairwise')", "factors of two variables and one label count"),
    "chain on a grid": (GRID, "chain", "needs a graph of paths, but variable 1 has 3 neighbours"),
    "chain on a triangle": (Graph.from_edges([(0, 1), (1, 2), (2, 0)]), "chain", "needs a graph of paths"),
    "rho of another graph": (GRID, "tree_reweighted(rho=[1, 1])", r"one per factor \(12\); received shape \(2,\)"),
}

OBSERVED = {
    "too few": ([0, 1], r"observed must have shape \(3,\), one per variable; received \(2,\)"),
    "one": (0, r"observed must have shape \(3,\)"),
    "none": ([], r"observed must have shape \(3,\)"),
    "out of range": ([0, 1, 2], r"observed\[2\] is 2; variable 2 has labels 0 \.\. 1 \(-1 = hidden\)"),
    "below -1": ([0, -2, 1], r"observed\[1\] is -2"),
    "float": ([0.0, 1.0, 1.0], "observed must be integers .* received dtype float64"),
    "text": (["a", "b", "c"], "observed must be integers"),
    "None in it": ([None, 0, 1], "observed must be integers .* received dtype object"),
    "ragged": ([[0], [1, 2], [1]], r"observed must be \(3,\) integers"),
    "a dictionary": ({0: 1}, r"observed must have shape \(3,\)"),
    "empty set": (np.array([[1, 1], [0, 0], [1, 1]], dtype=bool), r"observed\[1\] allows no label"),
    "wide mask": (np.ones((3, 3), dtype=bool), r"observed\[0\] must be a boolean mask of 2 labels"),
    "integer mask": (np.ones((3, 2), dtype=int), r"observed\[0\] must be a boolean mask"),
    "short mask": (np.ones((2, 2), dtype=bool), "observed must hold 3 rows"),
    "3-d": (np.ones((3, 2, 2), dtype=bool), r"observed must have shape \(3,\)"),
}


def one_error(call, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(bf.InputError, match=message) as caught:
            call()
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


@pytest.mark.parametrize("case", GRAPHS)
def test_graph(case):
    one_error(*GRAPHS[case])


@pytest.mark.parametrize("case", POTENTIALS)
def test_potentials(case):
    one_error(*POTENTIALS[case])


@pytest.mark.parametrize("case", SETTINGS)
def test_settings(case):
    spec, message = SETTINGS[case]
    one_error(lambda: bf.infer(zeros(CHAIN), spec), message)


@pytest.mark.parametrize("case", OTHER_GRAPHS)
def test_method_and_graph(case):
    graph, spec, message = OTHER_GRAPHS[case]
    one_error(lambda: bf.infer(zeros(graph), spec), message)


@pytest.mark.parametrize("case", OBSERVED)
def test_observed(case):
    observed, message = OBSERVED[case]
    one_error(lambda: bf.infer(zeros(CHAIN), "exact", observed=observed), message)


def test_observed_with_mixed_label_counts():
    one_error(
        lambda: bf.infer(zeros(MIXED), "exact", [[True] * 2, [True] * 2, [True] * 2]),
        r"observed\[1\] must be a boolean mask",
    )
    one_error(lambda: bf.infer(zeros(MIXED), "exact", [[True] * 2, 0, 1]), r"observed\[1\] must be a boolean mask")
    one_error(lambda: bf.infer(zeros(MIXED), "exact", [0, 3, 0]), r"observed\[1\] is 3; variable 1 has labels 0 \.\. 2")


@pytest.mark.parametrize("dtype", ["float16", "int64", "complex128", "foo", None, 3, object])
def test_dtype(dtype):
    one_error(lambda: bf.infer(zeros(CHAIN), "exact", dtype=dtype), "dtype must be 'float32' or 'float64', received")


def test_theta():
    for theta in (np.zeros((3, 2)), None, CHAIN):
        one_error(lambda theta=theta: bf.infer(theta, "exact"), "theta must be Potentials, received")
        one_error(lambda theta=theta: bf.find_map(theta), "theta must be Potentials, received")


@pytest.mark.parametrize(
    ("value", "dtype"), [(1e300, "float64"), (-1e300, "float64"), (1e35, "float32"), (-1e35, "float32")]
)
def test_potentials_whose_sums_overflow(value, dtype):
    theta = Potentials(CHAIN, unary_of(t01=value, t10=-INF), TABLES)
    one_error(lambda: bf.infer(theta, "exact", dtype=dtype), r"unary potentials hold .*1e\+.*finite ones may be up to")
    tables = TABLES.copy()
    tables[1, 0, 0] = value
    one_error(lambda: bf.infer(Potentials(CHAIN, unary_of(), tables), "exact", dtype=dtype), "factors potentials hold")


METHODS = names("inference")


@pytest.mark.parametrize("method", METHODS)
def test_all_labels_of_a_variable_forbidden(method):
    theta = Potentials(CHAIN, unary_of(t10=-INF, t11=-INF), TABLES)
    one_error(lambda: bf.infer(theta, method), "variable 1 has no allowed label: its unary potentials are all -inf")
    one_error(lambda: bf.find_map(theta), "variable 1 has no allowed label")
    theta = Potentials(CHAIN, unary_of(), TABLES + [[[0]], [[-INF]]])
    one_error(lambda: bf.infer(theta, method), "factor 1 forbids everything: its table is all -inf")


@pytest.mark.parametrize("method", METHODS)
def test_no_configuration_is_possible(method):
    """Nothing is forbidden on its own: a chain that must start with 0, stay the same, and end with 1."""
    same = np.array([[0, -INF], [-INF, 0]])
    theta = Potentials(CHAIN, unary_of(t01=-INF, t20=-INF), [same, same])
    one_error(lambda: bf.infer(theta, method), "forbid|possible")


@pytest.mark.parametrize("method", METHODS)
def test_impossible_evidence(method):
    theta = Potentials(CHAIN, unary_of(t01=-INF), TABLES)
    one_error(lambda: bf.infer(theta, method, [1, -1, -1]), "the evidence is impossible")
    one_error(lambda: bf.infer(theta, method, [1, 0, 0]), "the evidence is impossible")
    same = np.array([[0, -INF], [-INF, 0]])
    theta = Potentials(CHAIN, unary_of(), [same, same])
    one_error(lambda: bf.infer(theta, method, [0, 1, -1]), "the evidence is impossible")
    # Variable 1 is left without a label: the message names it by its number in the whole model.
    one_error(lambda: bf.infer(theta, method, [0, -1, 1]), "the evidence is impossible: variable 1 has no allowed label")


@pytest.mark.parametrize("method", METHODS)
def test_impossible_evidence_that_only_inference_can_see(method):
    same = np.array([[0, -INF], [-INF, 0]])
    theta = Potentials(Graph.chain(4), np.zeros((4, 2)), [same] * 3)
    one_error(lambda: bf.infer(theta, method, [0, -1, -1, 1]), "forbid|possible")


def test_a_frustrated_cycle():
    """No labeling has three different neighbours with two labels; no message says so on its own."""
    differ = np.array([[-INF, 0], [0, -INF]])
    theta = Potentials(Graph.from_edges([(0, 1), (1, 2), (2, 0)]), np.zeros((3, 2)), [differ] * 3)
    for method in ("brute_force", "exact"):
        one_error(lambda method=method: bf.infer(theta, method), "no configuration is possible")
    for method in ("loopy_bp", "tree_reweighted"):  # approximate: finite and normalised, or refused
        run = bf.infer(theta, method)
        assert np.isfinite(run.marginals.vector()).all() and np.allclose(run.unary.sum(axis=1), 1)


def test_mean_field_says_that_its_start_is_forbidden():
    """Two variables that must be equal: under a uniform start every label of the first meets a forbidden pair."""
    same = np.array([[0, -INF], [-INF, 0]])
    theta = Potentials(Graph.chain(2), np.zeros((2, 2)), [same])
    one_error(lambda: bf.infer(theta, "mean_field"), "uniform start forbids every label of variable 0.*loopy_bp")
    one_error(lambda: MeanField(schedule="flooding").infer(theta), "uniform start forbids every label of variable")
    assert bf.infer(theta, "loopy_bp").log_partition == pytest.approx(np.log(2))


def test_exact_refuses_tables_beyond_its_memory():
    theta = zeros(Graph.grid(12, 12))
    one_error(lambda: bf.infer(theta, "exact(memory=1000)"), "exact needs a table of .* entries .* but memory=1,000 bytes")


@pytest.mark.parametrize("room", ["inference", "map_solvers"])
def test_every_part_refuses_an_unknown_parameter(room):
    for name in names(room):
        one_error(
            lambda name=name: get(room, f"{name}(no_such_parameter=1)"), f"{name}' has no parameter 'no_such_parameter'"
        )


def test_warnings_and_errors_are_those_of_the_package():
    assert issubclass(bf.InputError, ValueError) and issubclass(bf.ConvergenceWarning, UserWarning)
