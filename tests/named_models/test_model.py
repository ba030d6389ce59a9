"""Models with names against enumeration; sentences about unknown names."""

import importlib
import itertools
import math

import numpy as np
import pytest

import backfield as bf
from backfield.models import Model, Table
from backfield.models.reduced import relevant
from tests.models import random_potentials


def sprinkler():
    return Model(
        {"rain": ["no", "yes"], "sprinkler": ["off", "on"], "wet": ["dry", "damp", "soaked"]},
        conditionals={
            "rain": [0.8, 0.2],
            "sprinkler": (["rain"], [[0.6, 0.4], [0.99, 0.01]]),
            "wet": (["sprinkler", "rain"], [[[1, 0, 0], [0.2, 0.3, 0.5]], [[0.1, 0.4, 0.5], [0.01, 0.09, 0.9]]]),
        },
    )


def random_network(seed, zeros=0.2):
    """A Bayesian network of eight variables with two or three states, some rows deterministic."""
    rng = np.random.default_rng(seed)
    states = {f"v{i}": [f"s{x}" for x in range(rng.integers(2, 4))] for i in range(8)}
    names = list(states)
    conditionals = {}
    for i, name in enumerate(names):
        parents = [names[j] for j in rng.choice(i, size=min(i, rng.integers(0, 3)), replace=False)] if i else []
        table = rng.dirichlet(np.ones(len(states[name])), size=[len(states[p]) for p in parents])
        sharp = rng.random(table.shape[:-1]) < zeros
        table[sharp] = np.eye(len(states[name]))[rng.integers(len(states[name]), size=sharp.sum())]
        conditionals[name] = (parents, table)
    order = rng.permutation(8)  # children may come before their parents
    return Model({names[i]: states[names[i]] for i in order}, conditionals=conditionals)


def random_field(seed):
    rng = np.random.default_rng(seed)
    factors = [rng.choice(5, size=rng.integers(2, 4), replace=False) for _ in range(5)]
    return Model.from_potentials(random_potentials(bf.Graph(rng.integers(2, 4, size=5), factors), rng, 1.0))


def mixed(seed):
    """A Bayesian network with two more factors."""
    rng = np.random.default_rng(seed)
    model = random_network(seed)
    some = list(rng.choice(model.names, size=3, replace=False))
    factors = [(names, rng.random([len(model.states[n]) for n in names])) for names in (some[:2], some[2:])]
    return Model(model.states, factors, {name: model.conditional(name) for name in model.names})


MAKERS = (random_network, random_field, mixed)
each_kind = pytest.mark.parametrize("make", MAKERS)


def enumerate_joint(model):
    """Return probabilities (not normalised) of all labelings, one axis for each variable."""
    joint = np.empty(model.variables.labels)
    for labels in itertools.product(*map(range, model.variables.labels)):
        joint[labels] = math.exp(model.theta.score(np.array(labels)))
    return joint


def evidence(model, seed, count=2):
    """States of some variables, taken from a sample, so that they are possible."""
    rng = np.random.default_rng(seed)
    row = model.sample(1, seed=seed)
    names = rng.choice(model.names, size=count, replace=False)
    return {str(name): next(iter(row[name])) for name in names}


def conditioned(model, given):
    joint = enumerate_joint(model)
    mask = np.zeros(joint.shape, dtype=bool)
    mask[tuple(model.variables.label(i, given[n]) if n in given else slice(None) for i, n in enumerate(model.names))] = True
    return np.where(mask, joint, 0)


@each_kind
def test_queries_are_those_of_enumeration(make):
    for seed in range(12):
        model = make(seed)
        rng = np.random.default_rng(seed)
        given = evidence(model, seed)
        joint = conditioned(model, given)
        for size in (1, 2, 3):
            wanted = rng.choice(len(model.names), size=size, replace=False)  # evidence may be among them
            others = tuple(i for i in range(joint.ndim) if i not in wanted)
            marginal = joint.sum(axis=others) / joint.sum()
            marginal = marginal.transpose(np.argsort(np.argsort(wanted)))
            table = model.table([model.names[i] for i in wanted], given)
            assert table.names == tuple(model.names[i] for i in wanted)
            np.testing.assert_allclose(table.values, marginal, rtol=0, atol=1e-12)
        for i, (name, row) in enumerate(model.marginals(given).items()):
            assert name == model.names[i]
            other = tuple(j for j in range(joint.ndim) if j != i)
            np.testing.assert_allclose(row, joint.sum(axis=other) / joint.sum(), rtol=0, atol=1e-12)


@each_kind
def test_log_probability(make):
    for seed in range(8):
        model = make(seed)
        joint = enumerate_joint(model)
        assert model.log_partition == pytest.approx(math.log(joint.sum()), abs=1e-10)
        given = evidence(model, seed, 3)
        wanted = math.log(conditioned(model, given).sum() / joint.sum())
        assert model.log_probability(given) == pytest.approx(wanted, abs=1e-10)
        full = evidence(model, seed, len(model.names))
        assert model.log_probability(full) == pytest.approx(
            math.log(conditioned(model, full).sum() / joint.sum()), abs=1e-10
        )


def test_impossible_assignments_have_probability_zero():
    assert sprinkler().log_probability({"rain": "no", "sprinkler": "off", "wet": "damp"}) == -np.inf


@each_kind
def test_most_probable_states(make):
    for seed in range(12):
        model = make(seed)
        given = evidence(model, seed)
        joint = conditioned(model, given)
        best = model.map_query(given)
        assert joint[tuple(model.variables.label(i, best[n]) for i, n in enumerate(model.names))] == pytest.approx(
            joint.max()
        )
        wanted = sorted(np.random.default_rng(seed).choice(len(model.names), size=2, replace=False).tolist())
        marginal = joint.sum(axis=tuple(i for i in range(joint.ndim) if i not in wanted))
        found = model.marginal_map([model.names[i] for i in wanted], given)
        value = marginal[tuple(model.variables.label(i, found[model.names[i]]) for i in wanted)]
        assert value == pytest.approx(marginal.max())
        other = model.map_query(given, solver="brute_force")
        assert model.log_probability(other) == pytest.approx(model.log_probability(best))


def test_marginal_map_is_not_the_map():
    model = Model({"a": 2, "b": 3}, factors=[(["a", "b"], [[0.4, 0.0, 0.0], [0.2, 0.2, 0.2]])])
    assert model.map_query() == {"a": 0, "b": 0}
    assert model.marginal_map("a") == {"a": 1}


@each_kind
def test_samples_have_the_distribution_of_the_model(make):
    model = make(3)
    given = evidence(model, 3, 1)
    rows = model.sample(20_000, seed=1, given=given)
    for name, mu in model.marginals(given).items():
        counts = [sum(value == state for value in rows[name]) for state in model.states[name]]
        np.testing.assert_allclose(np.array(counts) / 20_000, mu, rtol=0, atol=0.02)
    joint = conditioned(model, given) / conditioned(model, given).sum()
    pair = model.names[0], model.names[-1]
    both = np.mean(
        [a == model.states[pair[0]][0] and b == model.states[pair[1]][0] for a, b in zip(*(rows[n] for n in pair))]
    )
    wanted = joint[0].reshape(-1, joint.shape[-1])[:, 0].sum()
    assert both == pytest.approx(wanted, abs=0.02)
    again = model.sample(20_000, seed=1, given=given)
    assert all(list(rows[name]) == list(again[name]) for name in model.names)


@each_kind
def test_condition_and_marginalize(make):
    for seed in range(8):
        model = make(seed)
        given = evidence(model, seed)
        joint = conditioned(model, given)
        free = [i for i, name in enumerate(model.names) if name not in given]
        other = model.condition(given)
        assert other.names == tuple(model.names[i] for i in free)
        squeezed = joint.sum(axis=tuple(i for i in range(joint.ndim) if i not in free))
        np.testing.assert_allclose(enumerate_joint(other), squeezed, atol=1e-12)
        for name in other.names:  # barren variables are still known, and rightly so
            np.testing.assert_allclose(other.table(name).values, model.table(name, given).values, atol=1e-12)
        gone = list(given)
        left = model.marginalize(gone)
        summed = enumerate_joint(model).sum(axis=tuple(i for i in range(joint.ndim) if i not in free))
        np.testing.assert_allclose(enumerate_joint(left), summed, rtol=1e-9, atol=1e-12)
        for name in left.names:
            np.testing.assert_allclose(left.table(name).values, model.table(name).values, atol=1e-12)


def test_evidence_of_several_states():
    model = sprinkler()
    joint = enumerate_joint(model)
    part = joint[:, :, 1:].sum(axis=(1, 2))
    np.testing.assert_allclose(model.table("rain", {"wet": ["damp", "soaked"]}).values, part / part.sum())
    assert model.condition({"wet": ["damp", "soaked"]}).states["wet"] == ("damp", "soaked")


def test_barren_variables_are_pruned():
    model = sprinkler()
    keep, factors = relevant(model.theta, model._conditional, np.array([True, False, False]))
    assert keep.tolist() == [True, False, False] and not factors.any()
    keep, factors = relevant(model.theta, model._conditional, np.array([False, True, False]))
    assert keep.tolist() == [True, True, False] and factors.sum() == 1
    field = Model({"a": 2, "b": 2}, factors=[(["a", "b"], [[1, 2], [3, 4]])])
    assert relevant(field.theta, field._conditional, np.array([True, False]))[0].all()  # it does not sum to one


def test_a_network_too_wide_as_a_whole_answers_about_a_part():
    """Thirty roots with one common child, of 2**30 rows in a clique, and a query above it."""
    states = {f"r{i}": 2 for i in range(40)}
    conditionals = {name: [0.5, 0.5] for name in states}
    for i in range(40):  # a dense layer below
        for j in range(i):
            states[f"c{i}_{j}"] = 2
            conditionals[f"c{i}_{j}"] = ([f"r{i}", f"r{j}"], np.full((2, 2, 2), 0.5))
    model = Model(states, conditionals=conditionals)
    np.testing.assert_allclose(model.table(["r0", "r1"], {"c1_0": 0}).values, 0.25)
    with pytest.raises(bf.InputError, match="exact needs"):
        model.marginals({name: 0 for name in states if name.startswith("c")})


def test_other_inference():
    model = random_field(0)
    np.testing.assert_allclose(
        model.table(model.names[0], inference="brute_force").values, model.table(model.names[0]).values, atol=1e-12
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.query("rian"), "there is no variable 'rian'; did you mean 'rain'?"),
        (lambda m: m.query(["Rain"]), "did you mean 'rain'"),
        (lambda m: m.query("rain", {"wet": "soakd"}), "variable 'wet' has no state 'soakd'; did you mean 'soaked'?"),
        (lambda m: m.query("rain", {"wett": "dry"}), "did you mean 'wet'?"),
        (lambda m: m.query("zzz"), "known: rain, sprinkler, wet."),
        (lambda m: m.query([]), "at least one variable"),
        (lambda m: m.query(["rain", "rain"]), "'rain' twice"),
        (lambda m: m.query("rain", {"wet": []}), "leaves variable 'wet' no state"),
        (lambda m: m.query("rain", ["wet"]), "given must map names"),
        (lambda m: m.query(3), "must be a list of names"),
        (lambda m: m.query("rain", {"rain": "no", "sprinkler": "off", "wet": "damp"}), "the evidence is impossible"),
        (lambda m: m.map_query({"rain": "no", "sprinkler": "off", "wet": "damp"}), "the evidence is impossible"),
        (lambda m: m.sample(0), "integer >= 1"),
        (lambda m: m.sample(2, given={"rain": "no", "sprinkler": "off", "wet": "damp"}), "the evidence is impossible"),
        (lambda m: m.marginalize(["rain", "wet", "sprinkler"]), "no model is left"),
        (lambda m: m.condition({"rain": "no", "wet": "dry", "sprinkler": "on"}), "no model is left"),
        (lambda m: m.marginal_map([]), "at least one variable"),
        (lambda m: m.table("rain")["maybe"], "no state 'maybe'"),
        (lambda m: m.table("rain")["no", "off"], "1 states are needed"),
        (lambda m: m.write("model.txt"), "does not end in .bif"),
    ],
)
def test_sentences(call, message):
    with pytest.raises(bf.InputError) as caught:
        call(sprinkler())
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({},), "at least one name"),
        (({"a": []},), "'a' has no states"),
        (({"a": "yes"},), "must be a list of states"),
        (({"a": ["x", "x"]},), "'x' twice"),
        (({3: 2},), "names of variables are strings"),
        (({"a": 2}, [(["b"], [1, 2])]), "no variable 'b'"),
        (({"a": 2}, [(["a"], [1, 2, 3])]), "has shape (3,); (2,) is needed"),
        (({"a": 2}, [(["a"], [1, -2])]), "holds -2.0"),
        (({"a": 2}, [(["a"], ["x", "y"])]), "must hold numbers"),
        (({"a": 2}, [["a"]]), "a pair of names and a table"),
        (({"a": 2}, [([], 1.0)]), "names no variable"),
        (({"a": 2}, [], {"a": [0.5, 0.4]}), "sums to 0.9, not to 1"),
        (({"a": 2}, [], {"a": (["a"], np.full((2, 2), 0.5))}), "parent of itself"),
        (({"a": 2, "b": 2}, [], {"a": (["b"], np.full((2, 2), 0.5)), "b": (["a"], np.full((2, 2), 0.5))}), "a cycle"),
        (({"a": 2}, [], [0.5, 0.5]), "conditionals must map"),
    ],
)
def test_sentences_about_bad_tables(arguments, message):
    with pytest.raises(bf.InputError) as caught:
        Model(*arguments)
    assert message in str(caught.value)


def test_tables():
    table = sprinkler().table(["rain", "wet"])
    assert isinstance(table, Table)
    lines = repr(table).splitlines()
    assert lines[0].split() == ["rain", "wet", "probability"] and len(lines) == 7
    assert table["yes", "dry"] == table.values[1, 0]
    assert "<td>soaked</td>" in table._repr_html_()
    assert "..." in repr(Model({"a": 100}).table("a"))


def test_frames():
    pandas = pytest.importorskip("pandas")
    frame = sprinkler().query(["rain", "wet"])
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == ["rain", "wet", "probability"]
    assert frame["probability"].sum() == pytest.approx(1) and list(frame["wet"][:3]) == ["dry", "damp", "soaked"]
    assert isinstance(sprinkler().sample(3), pandas.DataFrame)


def test_pictures():
    model = sprinkler()
    assert "Bayesian network" in repr(model) and "<td>rain, sprinkler</td>" not in repr(model)
    assert "sprinkler, rain" in model._repr_html_()
    assert "neighbours" in random_field(0)._repr_html_()
    pytest.importorskip("matplotlib").use("Agg")
    for other in (model, random_field(1)):
        ax = other.plot()
        assert {text.get_text() for text in ax.texts} >= set(other.names)


def test_pgmpy_and_back():
    pytest.importorskip("pgmpy")
    for model in (sprinkler(), mixed(2)):
        other = Model.from_pgmpy(model.to_pgmpy())
        assert set(other.names) == set(model.names) and other.is_directed == model.is_directed
        for name in model.names:
            assert other.states[name] == model.states[name]
            np.testing.assert_allclose(other.table(name).values, model.table(name).values, atol=1e-12)
    with pytest.raises(bf.InputError, match="received int"):
        Model.from_pgmpy(3)


def test_answers_are_kept_for_the_last_evidence_only():
    model = random_network(4)
    for small in (2**18, 0):  # through the tree of the whole model, and through what a question depends on
        model._posteriors.__dict__.pop("_compiled", None)
        posteriors = importlib.import_module("backfield.models.posteriors")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(posteriors, "SMALL", small)
            for seed in (1, 2, 1):
                given = evidence(model, seed)
                joint = conditioned(model, given)
                for _ in range(3):
                    for i, name in enumerate(model.names):
                        wanted = joint.sum(axis=tuple(j for j in range(joint.ndim) if j != i)) / joint.sum()
                        np.testing.assert_allclose(model.table(name, given).values, wanted, rtol=0, atol=1e-12)
            table = model.table(model.names[0])
            table.values[:] = -1  # a caller may write to what it was given
            assert model.table(model.names[0]).values.min() >= 0


def test_tables_that_underflow_are_left_to_logarithms():
    n = 60
    states = {f"v{i}": 2 for i in range(n)}
    factors = [([f"v{i}", f"v{i + 1}"], [[1e-300, 1e-30], [1e-30, 1e-300]]) for i in range(n - 1)]
    factors += [([f"v{i}"], [1.0, 1e-250]) for i in range(n)]
    model = Model(states, factors)
    run = bf.infer(model.theta, "exact")
    assert model.log_partition == pytest.approx(run.log_partition)
    for i, row in enumerate(model.marginals().values()):
        np.testing.assert_allclose(row, run.unary[i], rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", ["/no/such/file.bif", "/no/such/file.uai.gz", 3, ""])
def test_files_that_are_not_there(path):
    with pytest.raises(bf.InputError, match=r"cannot read /no/such|path must be a path"):
        bf.Model.read(path)
