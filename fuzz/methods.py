"""Odd arguments of the methods of fitted models, and of the names of other libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import backfield as bf
from backfield.compat import pycrfsuite, sklearn_crfsuite
from backfield.compat.pydensecrf import densecrf, utils
from backfield.errors import InputError
from fuzz.calls import ODD
from fuzz.models import Case, images, sentences

#: Odd shapes and numbers of arrays, beside the values that fit nowhere.
ARRAYS: list[Any] = [
    np.zeros((2, 6)), np.zeros((6, 2)), np.zeros((2, 6), np.float32), np.full((2, 6), np.inf), np.zeros((2, 0)),
    np.zeros((9, 6)), np.zeros((2, 6), complex), np.zeros((2, 6), np.uint8), np.zeros((2, 3, 3), np.uint8),
    np.full((2, 6), 1e38), np.zeros(6, int), np.full(6, -1), np.full(6, 7), np.zeros((2, 2)), [1, 2, 3], (0, 0), (3, 2),
    np.array([[1.0, np.nan], [0, 1]]), [[0, 1], [1, 0]], np.zeros((2, 3, 8, 9)), np.zeros((8, 9, 2)), np.eye(3)[None],
    [np.zeros((8, 9, 2))], [np.zeros((8, 9, 3))], [np.zeros((1, 1, 2))], [{"a": 1}], [["x"]], [[{"w=the": "x"}]],
    [[{"w": [1]}]], [[]], [[], []], {"a": ["x"]}, {"a": ["x"], "b": [None]}, {"a": ["q"], "b": ["x"]}, {"b": []}, "a",
    ["a", "a"], ["b"], {"a": "y"}, {"a": ["x", "y"]}, {"a": []}, {"c": "x"},
]  # fmt: skip


@dataclass
class Methods:
    """One odd argument, all others good: an answer, or one sentence."""

    name: str = "methods"
    models: dict[str, Any] = field(default_factory=dict)

    def prepare(self, folder: Path | None) -> None:
        X, y = images()
        words, tags = sentences()
        quick = {"learner": "lbfgs(max_iter=2)"}
        table = np.random.default_rng(0).normal(size=(20, 3))
        self.X, self.y, self.words, self.tags, self.table = X, y, words, tags, table
        near = quick | {"inference": "mean_field(n_iter=1)"}  # tiles of four pixels are large enough
        self.grid = bf.GridCRF(**near).fit(X, y)
        self.volume = bf.VolumeCRF(**near).fit([np.stack([x, x]) for x in X], [np.stack([m, m]) for m in y])
        self.dense = bf.DenseCRF(**quick).fit(X, y)
        self.chain = bf.ChainCRF(**quick).fit(words, tags)
        self.sets = bf.MultiLabelCRF(**quick).fit(table, (table > 0).astype(int))
        self.columns = {"a": list("xyxy") * 5, "b": list("xxyy") * 5}
        self.network = bf.MarkovNetwork(max_seconds=1.0).fit(self.columns)
        self.crf = sklearn_crfsuite.CRF(max_iterations=2).fit(words, tags)
        for calls in self.rooms().values():
            for call in calls:
                _warm_up(call)

    def rooms(self) -> dict[str, list[Callable[[Any], Any]]]:
        """Return functions of one argument, by what they belong to."""
        return {"estimators": self._estimators(), "models": self._models(), "pydensecrf": self._pydensecrf(),
                "crfsuite": self._crfsuite()}  # fmt: skip

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        choices = [*ODD, *ARRAYS]
        value = choices[int(rng.integers(len(choices)))]
        rooms = list(self.rooms().values())
        calls = rooms[int(rng.integers(len(rooms)))]
        call = calls[int(rng.integers(len(calls)))]
        return lambda: call(value)

    def _estimators(self) -> list[Callable[[Any], Any]]:
        grid, chain, sets, dense, volume = self.grid, self.chain, self.sets, self.dense, self.volume
        X, y = self.X, self.y
        return [
            lambda v: grid.predict(X, tile=v),
            lambda v: grid.predict(v, tile=4),
            lambda v: grid.predict_proba(X, tile=v),
            lambda v: grid.predict_proba(X, tile=4, out=v),
            lambda v: grid.predict(X, out=v),
            lambda v: grid.predict(X[0], tile=4, out=v),
            lambda v: list(grid.predict_each(X, tile=4, out=v)),
            lambda v: list(grid.predict_each(v)),
            lambda v: volume.predict([np.stack([x, x]) for x in X], tile=v),
            lambda v: volume.predict(v, tile=(1, 4, 4)),
            lambda v: volume.predict_proba(v),
            lambda v: dense.predict(X, tile=v),
            lambda v: dense.predict_proba(v),
            lambda v: grid.marginals(X[0], given=v),
            lambda v: grid.marginals(v),
            lambda v: grid.potentials(v),
            lambda v: grid.score(X, v),
            lambda v: grid.score(X, y, sample_weight=v),
            lambda v: grid.partial_fit(X, y, classes=v),
            lambda v: grid.partial_fit(X, y, sample_weight=v),
            lambda v: grid.problem(X, v),
            lambda v: grid.save(v),
            lambda v: chain.predict_best(self.words, k=v),
            lambda v: chain.predict_best(v),
            lambda v: chain.predict_spans(v),
            lambda v: chain.sample(self.words, n=v),
            lambda v: chain.sample(self.words, random_state=v),
            lambda v: chain.entropy(v),
            lambda v: chain.marginals(self.words[0], given=v),
            lambda v: sets.predict_proba(self.table, given=v),
            lambda v: sets.predict_proba(v),
            lambda v: sets.log_likelihood(self.table, v),
            lambda v: sets.score(self.table, v),
            lambda v: bf.MultiLabelCRF(pairs=v).fit(self.table, (self.table > 0).astype(int)),
            lambda v: sets.fit(self.table, (self.table > 0).astype(int), sample_weight=v),
            lambda v: sets.save(v),
        ]

    def _models(self) -> list[Callable[[Any], Any]]:
        network, model = self.network, self.network.model_
        return [
            lambda v: network.predict_proba(v),
            lambda v: network.predict(self.columns, v),
            lambda v: network.impute(v),
            lambda v: network.score(v),
            lambda v: bf.MarkovNetwork(edges=v, max_seconds=1.0).fit(self.columns),
            lambda v: bf.MarkovNetwork(max_seconds=1.0).fit(v),
            lambda v: model.query(v),
            lambda v: model.query("a", v),
            lambda v: model.query("a", inference=v),
            lambda v: model.table(v),
            lambda v: model.marginals(v),
            lambda v: model.map_query(v),
            lambda v: model.map_query(solver=v),
            lambda v: model.marginal_map(v),
            lambda v: model.sample(v),
            lambda v: model.sample(2, seed=v),
            lambda v: model.sample(2, given=v),
            lambda v: model.log_probability(v),
            lambda v: model.condition(v),
            lambda v: model.marginalize(v),
            lambda v: model.write(v),
            lambda v: model.parents(v),
            lambda v: model.conditional(v),
            lambda v: bf.Model.from_potentials(v),
            lambda v: bf.Model.from_potentials(model.theta, v),
            lambda v: bf.Model({"a": ["x", "y"]}, conditionals=v),
            lambda v: bf.Model({"a": ["x", "y"]}, conditionals={"a": v}),
            lambda v: bf.Model({"a": v}),
        ]

    def _pydensecrf(self) -> list[Callable[[Any], Any]]:
        labels = np.array([0, 1, 2, 1, 0, 2])

        def field_(unary: Any = None) -> Any:
            crf = densecrf.DenseCRF2D(3, 2, 2)
            crf.setUnaryEnergy(np.zeros((2, 6), np.float32) if unary is None else unary)
            return crf

        def run(crf: Any, change: Callable[[Any], Any]) -> Any:
            change(crf)
            return crf.inference(2)

        picture = np.zeros((2, 3, 3), np.uint8)
        return [
            lambda v: densecrf.DenseCRF(v, 2),
            lambda v: densecrf.DenseCRF(6, v),
            lambda v: densecrf.DenseCRF2D(v, 2, 2),
            lambda v: densecrf.DenseCRF2D(3, v, 2),
            lambda v: field_(v).inference(2),
            lambda v: run(field_(), lambda crf: crf.setUnaryEnergy(np.zeros((2, 3)), v)),
            lambda v: run(field_(), lambda crf: crf.setUnary(v)),
            lambda v: densecrf.ConstUnary(v),
            lambda v: densecrf.LogisticUnary(v, np.zeros((3, 6))),
            lambda v: densecrf.LogisticUnary(np.zeros((2, 3)), v),
            lambda v: run(field_(), lambda crf: crf.addPairwiseEnergy(v, 3)),
            lambda v: run(field_(), lambda crf: crf.addPairwiseEnergy(np.zeros((2, 6)), v)),
            lambda v: run(field_(), lambda crf: crf.addPairwiseEnergy(np.zeros((2, 6)), 3, kernel=v)),
            lambda v: run(field_(), lambda crf: crf.addPairwiseEnergy(np.zeros((2, 6)), 3, normalization=v)),
            lambda v: run(field_(), lambda crf: crf.addPairwiseGaussian(v, 3)),
            lambda v: run(field_(), lambda crf: crf.addPairwiseGaussian(3, v)),
            lambda v: run(field_(), lambda crf: crf.addPairwiseBilateral(v, 3, picture, 3)),
            lambda v: run(field_(), lambda crf: crf.addPairwiseBilateral(3, v, picture, 3)),
            lambda v: run(field_(), lambda crf: crf.addPairwiseBilateral(3, 3, v, 3)),
            lambda v: run(field_(), lambda crf: crf.addPairwiseBilateral(3, 3, picture, v)),
            lambda v: field_().inference(v),
            lambda v: field_().stepInference(v),
            lambda v: field_().klDivergence(v),
            lambda v: utils.unary_from_labels(v, 3, 0.7),
            lambda v: utils.unary_from_labels(labels, v, 0.7),
            lambda v: utils.unary_from_labels(labels, 3, v),
            lambda v: utils.unary_from_labels(labels, 3, 0.7, zero_unsure=v),
            lambda v: utils.unary_from_softmax(v),
            lambda v: utils.unary_from_softmax(np.full((2, 6), 0.5), scale=v),
            lambda v: utils.unary_from_softmax(np.full((2, 6), 0.5), clip=v),
            lambda v: utils.create_pairwise_gaussian(v, (2, 3)),
            lambda v: utils.create_pairwise_gaussian((1, 1), v),
            lambda v: utils.create_pairwise_bilateral(v, 3, picture, 2),
            lambda v: utils.create_pairwise_bilateral((1, 1), v, picture, 2),
            lambda v: utils.create_pairwise_bilateral((1, 1), 3, v, 2),
            lambda v: utils.create_pairwise_bilateral((1, 1), 3, picture, v),
            lambda v: utils.softmax_to_unary(v),
            lambda v: utils.compute_unary(v, 3),
        ]

    def _crfsuite(self) -> list[Callable[[Any], Any]]:
        def trained(x: Any, y: Any, **params: Any) -> Any:
            trainer = pycrfsuite.Trainer("lbfgs", {"max_iterations": 2} | params, verbose=False)
            trainer.append(x, y)
            return trainer.fit()

        def tagger() -> Any:
            made = pycrfsuite.Tagger()
            made.open_inmemory(self.crf._model)
            made.set(self.words[0])
            return made

        words, tags = self.words, self.tags
        names = sorted(set(sklearn_crfsuite.CRF().get_params()) - {"verbose", "model_filename"})
        return [
            lambda v: self.crf.fit(v, tags),
            lambda v: self.crf.fit(words, v),
            lambda v: self.crf.predict(v),
            lambda v: self.crf.predict_marginals(v),
            lambda v: self.crf.predict_single(v),
            lambda v: self.crf.score(words, v),
            *(lambda v, name=name: sklearn_crfsuite.CRF(**{name: v}).fit(words, tags) for name in names),
            lambda v: trained(v, tags[0]),
            lambda v: trained(words[0], v),
            lambda v: pycrfsuite.Trainer(v),
            lambda v: pycrfsuite.Trainer("ap", v),
            lambda v: pycrfsuite.Trainer().set("c2", v),
            lambda v: pycrfsuite.Trainer().get(v),
            lambda v: pycrfsuite.ItemSequence(v),
            lambda v: tagger().marginal(v, 0),
            lambda v: tagger().marginal("N", v),
            lambda v: tagger().probability(v),
            lambda v: tagger().tag(v),
            lambda v: pycrfsuite.Tagger().open(v),
            lambda v: pycrfsuite.Tagger().open_inmemory(v),
        ]


def _warm_up(call: Callable[[Any], Any]) -> None:
    """Run once what a case runs, so kernels are compiled before cases are timed."""
    for value in (np.zeros((2, 6)), 3):
        with contextlib.suppress(InputError):
            call(value)
