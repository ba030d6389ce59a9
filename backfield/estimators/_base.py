"""What the three estimators share: from samples to a problem, to weights, to predictions.

Subclasses say how an entry of their X becomes a :class:`Sample` and how labels of one example are flattened and given back
their shape. Everything else is here. Data in memory becomes examples once; of lazy data one example per thread is in memory.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from backfield.api import checked_weights, infer, make_setting
from backfield.decoders import Decoder
from backfield.energies import Energy, Network, NetworkEnergy, ObservedLinear
from backfield.energies.observed_linear import observed_pairs
from backfield.errors import InputError
from backfield.estimators._decode import decode
from backfield.estimators._graph_cache import GraphCache
from backfield.estimators._lazy import Lazy, checked_sequence, is_lazy, mapped, opened
from backfield.estimators._predicting import stream
from backfield.estimators._spec_params import SpecParams, part_of
from backfield.estimators._survey import Survey, Surveyor
from backfield.estimators.classifier import Classifier
from backfield.estimators.samples import Sample, checked_features
from backfield.execution import N_CHUNKS, sum_over_chunks
from backfield.execution.cluster import Cluster, active, open_cluster, using
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Restriction
from backfield.graph.labeling import as_labeling
from backfield.inference import Inference, Result
from backfield.learners import Learner
from backfield.learners.oracle_descent import oracle_energy
from backfield.losses._base import unary_entries
from backfield.objectives import Target, get_objective, jgmt_alias
from backfield.objectives._base import argmax_labels, balanced
from backfield.objectives.piecewise import pieces
from backfield.problem import Example, Layout, Problem, Rows, _Sum


class CRF(ClassifierMixin, SpecParams):
    """Base of the estimators; see :class:`GridCRF` for the parameters."""

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

    # ---- what subclasses give ----

    def _sample(self, x: Any, number: int) -> Sample:
        """Return the sample of one entry of X; graphs get their label count in :meth:`_graph`."""
        raise NotImplementedError

    def _flat_labels(self, y: Any, number: int) -> np.ndarray:
        """Return the labels of an example as (n,) values or an (n, L) mask."""
        raise NotImplementedError

    def _shaped(self, values: np.ndarray, sample: Sample, number: int) -> Any:
        """Give per-variable values back the shape of the input."""
        return values

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
            Whose workers compute values and gradients; the weights are the same, byte for byte.
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
        samples, labels = self._training_data(X, y)
        survey = self._survey(samples, labels)
        self._learn_classes(survey.seen)
        if survey.seen:
            get_objective(self.loss).check_labels(self._encoded(np.concatenate(survey.seen), 0))
        examples = self._examples(samples, labels, sample_weight, survey)
        w = self._start(examples, survey)
        problem = self._problem(examples, survey)
        held_out = None
        if validation is not None:
            more, more_labels = self._training_data(*validation)
            held_out = self._problem(self._examples(more, more_labels, None), self._survey(more, more_labels))
        learner = self._learner()
        with _Progress(self.verbose, repr(learner)) as progress:
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
        if not hasattr(learner, "step"):
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

    def _training_data(self, X: Any, y: Any) -> tuple[Sequence[Sample], Sequence[np.ndarray]]:
        """Return samples and flat labels, lists where X is in memory."""
        X, y = opened(X, y)
        if y is None:
            raise InputError("fit needs labels: y, or a folder that was packed with labels.")
        X, y = checked_sequence(X, "X"), checked_sequence(y, "y")
        if len(X) == 0:
            raise InputError("there are no examples to learn from.")
        if len(y) != len(X):
            raise InputError(f"got {len(X)} examples but {len(y)} labelings.")
        samples = mapped(self._sample, X)
        return samples, Lazy(self._flat_labels, y) if is_lazy(samples) else mapped(self._flat_labels, y)

    def _survey(self, samples: Sequence[Sample], labels: Sequence[np.ndarray]) -> Survey:
        """Go through the examples once."""
        surveyor = Surveyor(samples, labels)
        cluster = active()
        if cluster is not None and is_lazy(samples):
            return cluster.share(surveyor, np.ones(len(samples))).sum(None)

        def some(first: int, last: int) -> Survey:
            return surveyor.chunk(np.arange(first, last))

        return sum_over_chunks(some, len(samples), self._jobs(), operator.add)

    def _learn_classes(self, labels: list[np.ndarray]) -> None:
        if self.n_labels is not None:
            self.classes_ = np.arange(self.n_labels)
            return
        masks = [each.shape[1] for each in labels if each.ndim == 2]
        if masks:
            self.classes_ = np.arange(max(masks))
            return
        seen = np.unique(np.concatenate([np.unique(each) for each in labels]))
        seen = seen[seen >= 0] if seen.dtype.kind in "iu" else seen[seen != ""]
        if len(seen) == 0:
            raise InputError("there is nothing to learn from: all labels are hidden (-1).")
        self.classes_ = seen if len(seen) > 1 else np.union1d(seen, seen + 1 if seen.dtype.kind in "iu" else seen)

    def _encoded(self, labels: np.ndarray, number: int) -> np.ndarray:
        """Return labels as positions in ``classes_``, -1 = hidden; masks pass."""
        if labels.ndim == 2:
            return labels
        hidden = labels == (-1 if labels.dtype.kind in "iu" else "")
        position = np.searchsorted(self.classes_, labels)
        position = np.minimum(position, len(self.classes_) - 1)
        unknown = np.flatnonzero((self.classes_[position] != labels) & ~hidden)
        if len(unknown):
            raise InputError(
                f"example {number} holds the label {labels[unknown[0]]!r}, which is not among the classes "
                f"{_short(self.classes_)}; -1 means don't care."
            )
        return np.where(hidden, -1, position)

    def _examples(
        self,
        samples: Sequence[Sample],
        labels: Sequence[np.ndarray] | None,
        sample_weight: Any,
        survey: Survey | None = None,
    ) -> Sequence[Example]:
        """Return examples; the survey of those to learn from decides which weights there are."""
        features = None
        if survey is not None:
            if isinstance(self.unary, Classifier):
                features = self._out_of_fold(samples, labels)
            self.layout_ = self._make_layout(survey, samples, labels)
        weight = self._sample_weight(sample_weight, len(samples))
        return mapped(self._example, samples, features, labels, weight)

    def _example(self, sample: Sample, x: Any, labels: np.ndarray | None, weight: float | None, number: int) -> Example:
        """Return one example; ``x`` are its node features where they are not those of the sample."""
        graph = self._graph(sample)
        if x is None:
            x = self._node_features(sample, number)
            if isinstance(self.unary, Classifier):
                x = self.unary.log_probabilities(self.classifier_, x, len(self.classes_)).astype(self.dtype)
        unary, factors = self._rows(sample, graph, x, number)
        target = None if labels is None else self._target(sample, graph, self._encoded(labels, number), number)
        return Example(graph, unary, factors, target, 1.0 if weight is None else float(weight))

    def _graph(self, sample: Sample) -> Any:
        return sample.graph

    def _node_features(self, sample: Sample, number: int) -> Any:
        return checked_features(sample.node_features, sample.graph.n_variables, self.dtype, f"example {number}")

    def _out_of_fold(self, samples: Sequence[Sample], labels: Sequence[np.ndarray] | None) -> list[np.ndarray]:
        """Fit the classifier and return the log-probabilities of the training rows."""
        assert isinstance(self.unary, Classifier) and labels is not None
        if is_lazy(samples):
            raise InputError("unary=Classifier(...) learns from all rows at once: it needs X in memory, as a list.")
        features = mapped(self._node_features, samples)
        self.classifier_, out = self.unary.fit_predict(features, mapped(self._encoded, labels), len(self.classes_))
        return [each.astype(self.dtype) for each in out]

    def _make_layout(self, survey: Survey, samples: Sequence[Sample], labels: Sequence[np.ndarray] | None) -> Layout:
        """Return one block of weights per type of variable and per type of factor."""
        layout = Layout()
        for kind, count, outputs in survey.types("node"):
            unary = self._energy("unary")  # each block has its own: an oracle's function is kept in it
            outputs = self._n_outputs(outputs, 1)
            if isinstance(unary, ObservedLinear):
                if kind > 0:
                    raise InputError("observed_linear takes one node type; use 'linear'.")
                features, encoded = Lazy(self._node_features, samples), Lazy(self._encoded, labels)
                unary = unary.bind(*observed_pairs(features, encoded, outputs))
            if isinstance(self.unary, Classifier):
                count = len(self.classes_)
            layout.add("unary", unary, count, outputs, self.fit_intercept)
        for _, count, outputs in survey.types("factor"):
            outputs = self._n_outputs(outputs, 2)
            layout.add("factors", self._energy("pairwise"), count, outputs, self.fit_intercept or count == 0)
        return layout

    def _n_outputs(self, found: int, arity: int) -> int:
        """Return the size of a table for the size that the survey found."""
        return found

    def _energy(self, kind: str) -> Energy:
        spec = getattr(self, kind)
        if isinstance(spec, Classifier):
            spec = "linear"
        learner = self._learner()
        if getattr(learner, "uses_oracles", False):
            return oracle_energy(spec, learner.eps)
        part = part_of(kind, spec)
        if isinstance(part, Network):
            return part.bind()
        if not isinstance(part, Energy):
            raise InputError(f"{kind}={part!r} is an oracle; it needs learner='oracle_descent'.")
        return part

    def _rows(self, sample: Sample, graph: Any, x: Any, number: int) -> tuple[list[Rows | None], list[Rows | None]]:
        edges = _factor_features(sample, graph, self.dtype, number)
        unary = _split(x, sample.node_types, len(self.layout_.unary), number, "node")
        if graph.shape is not None and sample.node_types is None and self.layout_.unary[0].energy.whole:
            unary = [Rows(slice(0, graph.n_variables), x.reshape(*graph.shape, -1))]
        factors = _split(edges, sample.factor_types, len(self.layout_.factors), number, "factor")
        for blocks, parts, what in ((self.layout_.unary, unary, "node"), (self.layout_.factors, factors, "edge")):
            for block, rows in zip(blocks, parts, strict=True):
                if rows is not None and rows.features.shape[-1] != block.n_features:
                    raise InputError(
                        f"example {number} has {rows.features.shape[-1]} {what} features; {block.n_features} were learned."
                    )
        return unary, factors

    def _target(self, sample: Sample, graph: Any, labels: np.ndarray, number: int) -> Target:
        try:
            labeling = as_labeling(graph, labels)
            observed = None
            if sample.observed is not None:
                observed = Restriction(graph, as_labeling(graph, sample.observed, "observed").allowed)
            weights = checked_weights(graph, sample.weights)
            sizes = self._sizes(graph, weights)
            weights = self._with_class_weight(graph, weights) if sizes is None else balanced(graph, sizes, labeling)
        except InputError as error:
            raise InputError(f"example {number}: {error}") from error
        target = Target(labeling, observed, weights, sizes)
        get_objective(self.loss).admit(target)
        return target

    def _sizes(self, graph: Any, weights: np.ndarray | None) -> np.ndarray | None:
        """Return the sizes of the variables if classes are balanced, else None."""
        if not isinstance(self.class_weight, str):
            return None
        if self.class_weight != "balanced":
            raise InputError(f"class_weight must be None, 'balanced' or a dict, got {self.class_weight!r}.")
        if weights is not None and len(weights) != graph.n_variables:
            raise InputError("class_weight='balanced' takes weights per variable (n,), their sizes, not per label.")
        return np.ones(graph.n_variables) if weights is None else weights

    def _with_class_weight(self, graph: Any, weights: np.ndarray | None) -> np.ndarray | None:
        if self.class_weight is None:
            return weights
        if not isinstance(self.class_weight, dict):
            raise InputError(
                f"class_weight must be None, 'balanced' or a dict {{class: weight}}, got {self.class_weight!r}."
            )
        per_class = np.array([float(self.class_weight.get(c, 1.0)) for c in self.classes_.tolist()])
        if not (per_class.min() >= 0 and per_class.max() > 0 and np.isfinite(per_class).all()):
            raise InputError(f"class_weight must hold finite numbers >= 0, not all zero; got {self.class_weight!r}.")
        each = np.tile(per_class, graph.n_variables)
        if weights is None:
            return each
        return each * (np.repeat(weights, len(per_class)) if len(weights) == graph.n_variables else weights)

    def _sample_weight(self, sample_weight: Any, count: int) -> np.ndarray:
        if sample_weight is None:
            return np.ones(count)
        weight = np.asarray(sample_weight, dtype=np.float64)
        if weight.shape != (count,) or not np.isfinite(weight).all() or (weight < 0).any():
            raise InputError(f"sample_weight must be {count} finite numbers >= 0.")
        if count and not weight.any():
            raise InputError("sample_weight is zero for all examples: there is nothing to learn from.")
        return weight

    def _problem(self, examples: Sequence[Example], survey: Survey | None = None) -> Problem:
        objective, alias = get_objective(self.loss), jgmt_alias(self.loss)
        gradient = (self.gradient if alias is None else alias.gradient) if objective.needs_inference else None
        setting = make_setting(objective, self._trained_inference(), gradient, self._seed())
        options: dict[str, Any] = {"l2": self.l2, "dtype": self.dtype, "n_jobs": self._jobs()}
        options["labelled"] = survey.labelled if survey is not None else None
        options["n_chunks"] = getattr(self, "_n_chunks", N_CHUNKS)
        return self._distributed(self._specialised(Problem(examples, self.layout_, objective, setting, **options)))

    def _specialised(self, problem: Problem) -> Problem:
        """Return the same problem by a faster path, where there is one."""
        return problem

    def _distributed(self, problem: Problem) -> Problem:
        """Hand a problem to the workers, if there are some."""
        cluster = active()
        if cluster is None:
            return problem
        learner = self._learner()
        if not learner.distributes:
            raise InputError(f"{learner.name} works on the examples themselves, in one process: it takes no cluster.")
        problem.distribute(cluster)
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
        problem = IndependentProblem(
            examples,
            self.layout_,
            get_objective("univariate_logistic"),
            make_setting(get_objective("univariate_logistic"), "exact", None),
            l2=self.l2,
            dtype=self.dtype,
            n_jobs=self._jobs(),
            labelled=survey.labelled,
            n_chunks=getattr(self, "_n_chunks", N_CHUNKS),
        )
        learner: Learner = part_of("learner", "lbfgs(max_iter=50)")  # type: ignore[assignment]
        return learner.fit(self._distributed(problem), np.zeros(self.layout_.n_weights), seed=self._seed()).w

    def _trained_inference(self) -> Inference:
        alias = jgmt_alias(self.loss)
        spec = self.inference if alias is None or alias.inference is None else alias.inference
        return part_of("inference", spec)  # type: ignore[return-value]

    def _learner(self) -> Any:
        return part_of("learner", self.learner)

    def _seed(self) -> int:
        return int(self.random_state or 0)

    def _jobs(self) -> int:
        import os

        return (os.cpu_count() or 1) if self.n_jobs in (-1, None) else int(self.n_jobs)

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


class IndependentProblem(Problem):
    """The same examples without factors: logistic regression on the rows."""

    def _one(self, w: np.ndarray, example: Example, seed: int) -> _Sum:
        assert example.target is not None
        labels = example.target.labeling.labels
        graph = example.graph
        theta = self.layout.theta(w, Example(graph, example.unary, [None] * len(self.layout.factors)), self.dtype)
        known, entries = unary_entries(graph, labels)
        count = graph.n_labels  # a grid's own layout is many times its labels, and not needed here
        ptr = graph.layout.var_ptr if count is None else np.arange(0, graph.n_variables * count + 1, count)
        value, d_unary = pieces(theta.unary_flat, ptr, known, entries, np.ones(len(known)))
        wrong = float((argmax_labels(theta)[known] != labels[known]).sum())
        d_theta = Potentials.from_flat(graph, d_unary, theta.factors_flat)
        gradient = Layout(self.layout.unary, [], self.n_weights).vjp(Example(example.graph, example.unary, []), d_theta, w)
        return _Sum(float(value), gradient, wrong, 0)


def _factor_features(sample: Sample, graph: Any, dtype: Any, number: int) -> Any:
    if sample.factor_features is None:
        return np.empty((graph.n_factors, 0), dtype)
    return checked_features(sample.factor_features, graph.n_factors, dtype, f"example {number}, factors")


def _split(features: Any, types: Any, count: int, number: int, kind: str) -> list[Rows | None]:
    """Return the rows of each type; one type, or types in contiguous runs, need no copy."""
    if types is None:
        return [Rows(slice(0, features.shape[0]), features)] + [None] * (count - 1) if count else []
    types = np.asarray(types)
    if len(types) and types.max() >= count:
        raise InputError(f"example {number} has {kind}s of type {types.max()}, which was not seen in training.")
    out: list[Rows | None] = []
    for each in range(count):
        index = np.flatnonzero(types == each)
        if len(index) == 0:
            out.append(None)
        elif index[-1] - index[0] + 1 == len(index):
            run = slice(int(index[0]), int(index[-1]) + 1)
            out.append(Rows(run, features[run]))
        else:
            out.append(Rows(index, features[index]))
    return out


def _short(classes: np.ndarray) -> str:
    shown = ", ".join(str(c) for c in classes[:10])
    return shown + (", ..." if len(classes) > 10 else "")


class _Progress:
    """A progress bar through rich, on standard error, when ``verbose``."""

    def __init__(self, verbose: int, title: str) -> None:
        self.verbose, self.title = verbose, title

    def __enter__(self) -> Any:
        if not self.verbose:
            return None
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task(self.title, total=None)
        self.bar.__enter__()
        return self._update

    def _update(self, row: dict[str, Any]) -> None:
        shown = f"objective {row['objective']:.6g}"
        for key in ("validation", "error"):
            value = row.get(key)
            if value is not None and value == value:
                shown += f"  {key} {value:.4f}"
        self.bar.update(self.task, description=shown, completed=row["iteration"], total=row.get("total"))

    def __exit__(self, *error: Any) -> None:
        if self.verbose:
            self.bar.__exit__(*error)
