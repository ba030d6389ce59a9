"""The interfaces of python-crfsuite and sklearn-crfsuite."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import backfield as bf
from backfield.compat import pycrfsuite as ours
from backfield.compat.sklearn_crfsuite import CRF

HERE = Path(__file__).parent.parent / "data" / "crfsuite"
X = [[{"w": w, "b": 1.0, "n": {"len": len(w) / 10, "ends": [w[-1]]}} for w in text.split()] for text in
     ("the dog sees a cat", "a cat runs", "the dog runs", "dog sees the cat")]  # fmt: skip
Y = [tags.split() for tags in ("D N V D N", "D N V", "D N V", "N V D N")]


def test_tagger_against_stored_answers():
    stored, tagger = json.loads((HERE / "small.json").read_text()), ours.Tagger()
    with tagger.open(str(HERE / "small.crfsuite")):
        assert tagger.labels() == stored["labels"]
        for case in stored["cases"]:
            assert tagger.tag(ours.ItemSequence(case["x"])) == tagger.tag(case["x"]) == case["tags"]
            assert abs(tagger.probability(case["tags"]) - case["probability"]) < 1e-10
            assert abs(tagger.marginal(stored["labels"][1], 0) - case["marginals"][0][1]) < 1e-10
    with pytest.raises(bf.InputError, match="no model is open"):
        tagger.tag(X[0])


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"feature.possible_transitions": True},
        {"feature.possible_transitions": True, "c1": 0.2},
        {"feature.minfreq": 1.5, "c1": 0.05},
        {"feature.minfreq": 2, "feature.possible_transitions": True, "feature.possible_states": True},
    ],
)
def test_trainer_finds_the_weights_of_crfsuite(tmp_path, given):
    theirs = pytest.importorskip("pycrfsuite")
    params = {"c2": 0.3, "max_iterations": 200, "epsilon": 1e-9, "delta": 1e-14} | given
    c1 = given.get("c1", 0.0)
    found = []
    for package in (theirs, ours):
        trainer = package.Trainer("lbfgs", params, verbose=False)
        for x, y in zip(X, Y, strict=True):
            trainer.append(x, y)
        path = tmp_path / f"{package.__name__}.crfsuite"
        trainer.train(str(path))
        tagger = theirs.Tagger()
        tagger.open(str(path))
        found.append(tagger.info())
    theirs_kept, ours_kept = (set(info.state_features) for info in found)
    assert ours_kept <= theirs_kept if c1 else ours_kept == theirs_kept  # at least as sparse
    for kind in ("state_features", "transitions"):
        a, b = (getattr(info, kind) for info in found)
        assert max(abs(a.get(key, 0) - b.get(key, 0)) for key in a | b) < 2e-4  # their listing has six digits


def test_defaults_are_those_of_crfsuite():
    theirs = pytest.importorskip("pycrfsuite")
    for algorithm in ("lbfgs", "ap"):
        trainers = [package.Trainer(algorithm, verbose=False) for package in (theirs, ours)]
        assert trainers[0].get_params() == trainers[1].get_params()
        assert all(trainers[1].help(name) for name in trainers[1].params())
    with pytest.raises(bf.InputError, match="no parameter 'x' of ap"):
        trainers[1].help("x")


def test_the_log_of_a_training(capsys, tmp_path):
    trainer = ours.Trainer("lbfgs", {"max_iterations": 4}, verbose=False)
    for x, y in zip(X, Y, strict=True):
        trainer.append(x, y)
    trainer.train(str(tmp_path / "m.crfsuite"))
    log = trainer.logparser
    assert [row["num"] for row in log.iterations] == [1, 2, 3, 4] and log.last_iteration["loss"] < log.iterations[0]["loss"]
    tagger = ours.Tagger()
    tagger.open(str(tmp_path / "m.crfsuite"))
    tagger.dump()
    tagger.dump(str(tmp_path / "dump.txt"))
    text = capsys.readouterr().out
    assert "(1) D --> N: " in text and "(0) w:the --> D: " in text
    assert (tmp_path / "dump.txt").read_text() == text


def test_sklearn_face(tmp_path):
    path = tmp_path / "model.crfsuite"
    crf = CRF("lbfgs", c2=0.1, max_iterations=50, model_filename=str(path)).fit(X, Y)
    assert crf.predict(X) == Y and crf.score(X, Y) == 1.0
    assert crf.classes_ == ["D", "N", "V"] and crf.num_attributes_ == len(crf.attributes_)
    assert crf.state_features_["w:the", "D"] > 0 and crf.transition_features_["D", "N"] > 0
    p = crf.predict_marginals(X)
    assert abs(sum(p[0][0].values()) - 1) < 1e-12 and crf.predict_marginals_single(X[1]) == p[1]
    assert crf.predict([[], X[0]]) == [[], Y[0]] and crf.predict_marginals([[]]) == [[]]
    assert crf.training_log_.last_iteration["num"] == len(crf.training_log_.iterations)
    assert pickle.loads(pickle.dumps(crf)).predict(X) == Y
    assert CRF(model_filename=str(path)).predict(X) == Y
    assert clone(crf).c2 == 0.1 and crf.size_ == path.stat().st_size
    assert [tags.tolist() for tags in bf.load(path).predict(X)] == Y


def test_items_have_full_names():
    items = ours.ItemSequence([["foo"], {"bar": {"baz": 1}, "n": True, "l": ["x", "y"]}])
    assert items.items() == [{"foo": 1.0}, {"bar:baz": 1.0, "n": 1.0, "l:x": 1.0, "l:y": 1.0}]
    assert len(items) == 2


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"x": 1}, "no parameter 'x' of lbfgs"),
        ({"linesearch": "Backtracking"}, "Backtracking"),
        ({"c2": -1}, "c2 must be a finite number >= 0"),
        ({"c1": float("nan")}, "c1 must be a finite number >= 0"),
        ({"period": 0}, "period is a number"),
        ({"c2": "much"}, "of type float"),
        ({"gamma": 1.0}, "no parameter 'gamma' of lbfgs"),
    ],
)
def test_what_is_not_here_is_refused(params, match):
    with pytest.raises(bf.InputError, match=match):
        train(params)


def test_every_parameter_of_lbfgs_is_honoured():
    """Another value gives another fit, or an earlier end."""
    plain = iterations({})
    assert iterations({"max_iterations": 3}) == 3
    assert iterations({"epsilon": 0.5}) < plain and iterations({"delta": 0.1, "period": 2}) < plain
    assert iterations({"delta": 0.0, "epsilon": 1e-7}) > plain
    weights = [
        fitted(params).weights_ for params in ({}, {"c2": 5.0}, {"num_memories": 1}, {"feature.possible_states": True})
    ]
    assert len({w.tobytes() for w in weights}) == 4
    assert (fitted({"c1": 1.0}).weights_ == 0).any()


def fitted(params, algorithm="lbfgs"):
    trainer = ours.Trainer(algorithm, params, verbose=False)
    for x, y in zip(X, Y, strict=True):
        trainer.append(x, y)
    return trainer.fit()


def iterations(params):
    return fitted(params).trace_[-1]["iteration"]


@pytest.mark.parametrize("name", ["ap", "averaged-perceptron"])
def test_averaged_perceptron(name, tmp_path):
    crf = CRF(name, max_iterations=20, model_filename=str(tmp_path / "m.crfsuite")).fit(X, Y)
    assert crf.predict(X) == Y
    assert ours.Trainer(name, verbose=False).params()[-2:] == ["max_iterations", "epsilon"]
    assert fitted({"epsilon": 0.9}, name).trace_[-1]["iteration"] < 20
    with pytest.raises(bf.InputError, match="no parameter 'c2' of ap"):
        CRF(name, c2=1.0).fit(X, Y)


def train(params):
    trainer = ours.Trainer("lbfgs", params, verbose=False)
    trainer.append(X[0], Y[0])
    trainer.train("")


def test_other_algorithms_are_refused():
    for name in ("arow", "l2sgd", "pa", "passive-aggressive"):
        with pytest.raises(bf.InputError, match=f"{name}.*is not supported"):
            CRF(name).fit(X, Y)
    with pytest.raises(bf.InputError, match="no algorithm 'x'"):
        CRF("x").fit(X, Y)
    with pytest.raises(bf.InputError, match=r"no parameter 'calibration\.eta' of lbfgs"):
        CRF("lbfgs", calibration_eta=0.1).fit(X, Y)
    with pytest.raises(bf.InputError, match="not fitted"):
        CRF().predict(X)
    np.testing.assert_equal(CRF().classes_, None)
