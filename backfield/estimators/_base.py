"""What the three estimators share: from examples to a problem, to weights, to predictions.

How samples become examples is in :mod:`backfield.estimators._assembling`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from backfield.api import infer, make_setting
from backfield.decoders import Decoder
from backfield.energies import NetworkEnergy
from backfield.errors import InputError
from backfield.estimators._assembling import Assembling
from backfield.estimators._decode import decode
from backfield.estimators._graph_cache import GraphCache
from backfield.estimators._lazy import checked_sequence, opened
from backfield.estimators._predicting import stream
from backfield.estimators._progress import Progress
from backfield.estimators._spec_params import part_of
from backfield.estimators._survey import Survey
from backfield.estimators.samples import Sample
from backfield.graph import Graph, Potentials
from backfield.inference import Inference, Result
from backfield.learners import Incremental, Learner
from backfield.objectives import get_objective, jgmt_alias
from backfield.training.examples import Example
from backfield.training.execution import N_CHUNKS
from backfield.training.execution.cluster import Cluster, active, open_cluster, using
from backfield.training.problem import Problem


class CRF(ClassifierMixin, Assembling):
    """Base of the estimators; see :class:`GridCRF` for the parameters."""

    #: Every graph is a path 0 - 1 - ... - n-1.
    _chains: ClassVar[bool] = False

    def __init__(
        self,
        inference: Any = "tree_reweighted(n_iter=5)",
        loss: Any = "univariate_logistic",
        gradient: Any = "truncated",
        learner: Any = "lbfgs(max_iter=100)",
        unary: Any = "linear",
        pairwise: Any = "linear",
        decoder: Any = "max_marginal",
        l2: Any = 1e-3,
        fit_intercept: bool = True,
        start: Any = "independent",
        class_weight: Any = None,
        n_labels: int | None = None,
        dtype: str = "float32",
        n_jobs: int = 1,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.inference = inference
        self.loss = loss
        self.gradient = gradient
        self.learner = learner
        self.unary = unary
        self.pairwise = pairwise
        self.decoder = decoder
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.start = start
        self.class_weight = class_weight
        self.n_labels = n_labels
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # ---- fitting ----

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: Any = None,
        resume: bool = False,
        validation: tuple[Any, Any] | None = None,
        callbacks: Sequence[Any] = (),
        checkpoint_seconds: float = 30.0,
        checkpoint_iterations: int = 10,
        cluster: Any = None,
        n_chunks: int = N_CHUNKS,
    ) -> CRF:
        """Learn the weights.

        Parameters
        ----------
        X, y
            Examples and their labels (-1 = hidden), as lists or any sequences; or X alone, a packed folder with labels.
        sample_weight : (number of examples,), optional
        checkpoint : path, optional
            Written every ``checkpoint_seconds`` or ``checkpoint_iterations``; with ``resume`` the fit goes on from it.
        validation : (X, y), optional
            Examples whose loss stops learners that can stop early.
        callbacks : callables (iteration, w, row) -> stop?
        cluster : Dask client or cluster, ``tcp://`` or ``tls://`` address of a scheduler, or ``local:N``, optional
            Whose workers compute the sums over examples; the result is the same, byte for byte.
        n_chunks : int
            Into how many parts sums over examples are cut, for threads and workers alike: at most so many of them work at
            once. Another number changes the last bits of the weights.
        """
        if n_chunks < 1:
            raise InputError(f"n_chunks must be a whole number >= 1, got {n_chunks!r}.")
        self._n_chunks = int(n_chunks)
        self.__dict__.pop("_last_step", None)  # of an earlier partial_fit
        options: dict[str, Any] = {"callbacks": callbacks, "checkpoint": checkpoint, "resume": resume}
        options |= {"checkpoint_seconds": checkpoint_seconds, "checkpoint_iterations": checkpoint_iterations}
        with using(cluster):
            return self._fit(X, y, sample_weight, validation, options)

    def _fit(self, X: Any, y: Any, sample_weight: Any, validation: Any, options: dict[str, Any]) -> CRF:
        self._decoder()  # refused before hours are spent, not after
        samples, labels = self._training_data(X, y)
        survey = self._survey(samples, labels)
        self._learn_classes(survey.seen)
        if survey.seen:
            seen = np.concatenate(survey.seen)
            known = seen[np.isin(seen, self.classes_)] if seen.ndim == 1 else seen  # others are refused with their example
            get_objective(self.loss).check_labels(self._encoded(known, 0))
        examples = self._examples(samples, labels, sample_weight, survey)
        w = self._start(examples, survey)
        problem = self._problem(examples, survey)
        held_out = None
        if validation is not None:
            more, more_labels = self._training_data(*validation)
            held_out = self._problem(self._examples(more, more_labels, None), self._survey(more, more_labels))
        learner = self._learner()
        with Progress(self.verbose, repr(learner)) as progress:
            result = learner.fit(problem, w, seed=self._seed(), validation=held_out, progress=progress, **options)
        self.weights_, self.trace_ = result.w, result.trace
        self.converged_, self.message_ = result.converged, result.message
        self.n_features_in_ = self.layout_.unary[0].n_features
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> CRF:
        """Do one pass of the ``sgd`` learner over some more examples."""
        samples, labels = self._training_data(X, y)
        first = not hasattr(self, "weights_")
        survey = self._survey(samples, labels)
        if first:
            self._learn_classes([np.asarray(classes)] if classes is not None else survey.seen)
        examples = self._examples(samples, labels, sample_weight, survey if first else None)
        learner = self._learner()
        if not isinstance(learner, Incremental):
            raise InputError(f"partial_fit needs the learner 'sgd', not {learner.name!r}.")
        problem = self._problem(examples, survey)
        if first:
            self.weights_, self.trace_ = self.layout_.start(), []
        # Where an average of the weights is the answer, the steps go on from where the last one ended.
        w, state = getattr(self, "_last_step", (self.weights_, None))
        for number in range(len(examples)):
            w, state = learner.step(problem, w, state, np.array([number]), self._seed())
        self._last_step, self.weights_ = (w, state), learner.answer(w, state)
        self.n_features_in_ = self.layout_.unary[0].n_features
        return self

    def _problem(self, examples: Sequence[Example], survey: Survey | None = None) -> Problem:
        objective, alias = get_objective(self.loss), jgmt_alias(self.loss)
        gradient = (self.gradient if alias is None else alias.gradient) if objective.needs_inference else None
        setting = make_setting(objective, self._trained_inference(), gradient, self._seed())
        options: dict[str, Any] = {"l2": self.l2, "dtype": self.dtype, "n_jobs": self._jobs()}
        options["labelled"] = survey.labelled if survey is not None else None
        options["n_chunks"] = getattr(self, "_n_chunks", N_CHUNKS)
        return self._distributed(Problem(examples, self.layout_, objective, setting, chains=self._chains, **options))

    def _distributed(self, problem: Problem) -> Problem:
        """Hand a problem to the workers, if there are some."""
        problem.distribute(active())
        return problem

    def _start(self, examples: Sequence[Example], survey: Survey) -> np.ndarray:
        w = self.layout_.start()
        if not isinstance(self.start, str):
            given = np.asarray(self.start, dtype=np.float64)
            if given.shape != w.shape or not np.isfinite(given).all():
                raise InputError(f"start must be {len(w)} finite weights, as weights_ of such a model; got {given.shape}.")
            return given.copy()
        if self.start not in ("independent", "zero", "random"):
            raise InputError(f"start must be 'independent', 'zero', 'random' or weights, got {self.start!r}.")
        if self._learner().own_start or w.any():  # a network starts from what it is
            return w
        if self.start == "random":
            return np.random.default_rng(self._seed()).normal(size=len(w))
        if self.start == "independent" and any(block.stop > block.start for block in self.layout_.factors):
            return self._independent(examples, survey)
        return w

    def _independent(self, examples: Sequence[Example], survey: Survey) -> np.ndarray:
        """Return weights of the model without factors, from which all papers start."""
        problem = Problem(
            examples,
            self.layout_,
            get_objective("univariate_logistic"),
            make_setting(get_objective("univariate_logistic"), "exact", None),
            l2=self.l2,
            dtype=self.dtype,
            n_jobs=self._jobs(),
            labelled=survey.labelled,
            n_chunks=getattr(self, "_n_chunks", N_CHUNKS),
            coupled=False,
        )
        learner: Learner = part_of("learner", "lbfgs(max_iter=50)")  # type: ignore[assignment]
        return learner.fit(self._distributed(problem), np.zeros(self.layout_.n_weights), seed=self._seed()).w

    def _trained_inference(self) -> Inference:
        alias = jgmt_alias(self.loss)
        spec = self.inference if alias is None or alias.inference is None else alias.inference
        return part_of("inference", spec)  # type: ignore[return-value]

    def _seed(self) -> int:
        seed = 0 if self.random_state is None else self.random_state
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"random_state must be a whole number >= 0 or None, got {seed!r}.")
        return int(seed)

    # ---- predicting ----

    def predict(self, X: Any, cluster: Any = None) -> list[Any]:
        """Return predicted labels, shaped as the input."""
        with using(cluster):
            return list(self._stream("_labels_of", X))

    def predict_proba(self, X: Any, cluster: Any = None) -> list[Any]:
        """Return the marginals of every variable, shaped as the input with the labels as last axis."""
        with using(cluster):
            return list(self._stream("_marginals_of", X))

    def predict_each(self, X: Any, cluster: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield labels and marginals of each example in order, as they come; what is yielded is not held."""
        own = None if cluster is None else open_cluster(cluster)
        try:
            yield from self._stream("_both_of", X, own)
        finally:
            if own is not None:
                own.close()

    def _stream(self, what: str, X: Any, cluster: Cluster | None = None) -> Iterator[Any]:
        check_is_fitted(self, "weights_")
        return stream(self, what, checked_sequence(opened(X)[0], "X"), self._jobs(), cluster or active())

    def _labels_of(self, sample: Sample, example: Example, number: int) -> Any:
        decoded = decode(self._decoder(), self._trained_inference(), self._theta(example), sample, self.dtype)
        if getattr(decoded, "ndim", 1) == 1:
            decoded = self.classes_[decoded] if example.graph.n_labels is not None else decoded
        return self._shaped(decoded, sample, number)

    def _marginals_of(self, sample: Sample, example: Example, number: int) -> Any:
        return self._shaped(self._infer(self._theta(example), sample).unary, sample, number)

    def _both_of(self, sample: Sample, example: Example, number: int) -> tuple[Any, Any]:
        p = self._marginals_of(sample, example, number)
        if self._decoder().name == "max_marginal" and example.graph.n_labels is not None:
            return self.classes_[p.argmax(axis=-1)], p  # inference once for both
        return self._labels_of(sample, example, number), p

    def _decoder(self) -> Decoder:
        return part_of("decoder", self.decoder)  # type: ignore[return-value]

    def marginals(self, sample: Any, given: Any = None) -> Result:
        """Return marginals (also of factors) and log Z of one example, with the labels in ``given`` (-1 = free) fixed."""
        check_is_fitted(self, "weights_")
        one = self._sample(sample, 0)
        example = self._example(one, None, None, None, 0)
        if given is not None:
            one.observed = self._encoded(self._flat_labels(given, 0), 0)
        return self._infer(self._theta(example), one)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy over all labelled variables together."""
        right = total = 0.0
        X, y = opened(X, y)
        if y is None:
            raise InputError("score needs labels: y, or a folder that was packed with labels.")
        weight = self._sample_weight(sample_weight, len(y))
        for number, (prediction, each) in enumerate(zip(self._stream("_labels_of", X), y, strict=True)):
            labels = self._flat_labels(each, number)
            self._encoded(labels, number)  # an unknown class is an error, not a wrong guess
            known = labels != (-1 if labels.dtype.kind in "iu" else "")
            right += weight[number] * float((self._flat_labels(prediction, number)[known] == labels[known]).sum())
            total += weight[number] * float(known.sum())
        if total == 0:
            raise InputError("there is nothing to score: all labels are hidden (-1).")
        return right / total

    def _theta(self, example: Example) -> Potentials:
        theta = self.layout_.theta(self.weights_, example, self.dtype)
        self.layout_.forget()
        return theta

    def _infer(self, theta: Potentials, sample: Sample) -> Result:
        return infer(theta, self._trained_inference(), observed=sample.observed, dtype=self.dtype)

    def fitted_module(self, kind: str = "unary", number: int = 0) -> Any:
        """Return a copy of the network that is the energy of ``kind`` (of type ``number``), with the learned weights."""
        check_is_fitted(self, "weights_")
        block = getattr(self.layout_, {"unary": "unary", "pairwise": "factors"}[kind])[number]
        if not isinstance(block.energy, NetworkEnergy):
            raise InputError(f"the {kind} energy is {block.energy!r}, not a network.")
        return block.energy.fitted(self.weights_[block.start : block.stop])

    def save(self, path: Any) -> None:
        """Write the model to a file that :func:`backfield.load` reads back without running code."""
        from backfield.estimators.model_file import save

        save(self, path)


class OneLabelSetCRF(CRF):
    """Base of estimators whose variables all have the labels of ``classes_``: graphs differ by their size alone."""

    def _sized_graph(self, sample: Sample, labels: int) -> Graph:
        """Return the graph of a sample with that many labels."""
        raise NotImplementedError

    def _graph(self, sample: Sample) -> Graph:
        cache = self.__dict__.setdefault("_graphs", GraphCache())
        key = (sample.graph.shape or sample.graph.n_variables, len(self.classes_))
        return cache.get(key, lambda: self._sized_graph(sample, len(self.classes_)))

    def _n_outputs(self, found: int, arity: int) -> int:
        return len(self.classes_) ** arity

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_graphs"}
