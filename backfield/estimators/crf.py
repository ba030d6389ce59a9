"""CRF: a conditional random field on data of any structure."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np

from backfield.constraints import check, checked, several
from backfield.data.packed import open_data
from backfield.data.sequences import Ragged, checked_sequence, mapped
from backfield.energies import NetworkEnergy
from backfield.errors import InputError
from backfield.estimators import _fitting
from backfield.estimators._assembly import Assembler
from backfield.estimators._fitting import Fitted, checked_sample_weight
from backfield.estimators._predicting import Predictor, stream, stream_many
from backfield.estimators._settings import FIT, Settings, changed_part, with_parts
from backfield.graph import Potentials
from backfield.inference import Result
from backfield.lazy_names import homes
from backfield.metrics.tags import StructuredTags
from backfield.registry import get, lookup
from backfield.scikit_learn import BaseEstimator, ClassifierMixin, NotFittedError
from backfield.structures import Structure
from backfield.training.execution import N_CHUNKS, active, using
from backfield.training.execution.cluster import open_cluster
from backfield.training.problem import Problem
from backfield.training.weights import WeightLayout

#: The first estimator of each structure.
_KNOWN: dict[str, type[CRF]] = {}


def estimator_for(structure: str, **params: Any) -> CRF:
    """Return an estimator for data of a structure: its own class, with its defaults, where there is one."""
    part = get("structures", structure)
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    known = _estimator_of(part.name)
    return CRF(structure=repr(part), **params) if known is None else known(**fields | params)


def _estimator_of(structure: str) -> type[CRF] | None:
    """Return the class that has the structure; ours has its name, as GridCRF, and is imported now."""
    for name, module in homes("backfield.estimators").items():
        if name.lower() == f"{structure}crf":
            importlib.import_module(module)
    return _KNOWN.get(structure)


class CRF(ClassifierMixin, BaseEstimator):
    """A conditional random field; its ``structure`` defines what X and y are.

    A subclass that fixes the structure is one line, ``class VolumeCRF(CRF, structure="volume")``: it has the parameters of
    the structure in the place of ``structure``, and may have other ``defaults``.

    Parameters
    ----------
    inference, loss, gradient, learner, unary, pairwise, decoder, l2, fit_intercept, start, guard, class_weight, n_labels, \
dtype, n_jobs, random_state, verbose, l1
        As in :class:`GridCRF`.
    structure : str or Structure
        ``grid``, ``chain``, ``graph``, or one that a plugin brings.
    """

    _fixed: ClassVar[type | None] = None
    _fitted: Fitted | None = None

    def __init_subclass__(cls, structure: str | None = None, defaults: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if structure is not None:
            _KNOWN.setdefault(structure, cls)
            cls._fixed = lookup("structures", structure)
            cls.__init__ = _initialiser(cls._fixed, defaults or {})  # type: ignore[assignment, method-assign]

    def __init__(
        self,
        inference: Any = "auto",
        loss: Any = "univariate_logistic",
        gradient: Any = "truncated",
        learner: Any = "lbfgs(max_iter=100)",
        unary: Any = "linear",
        pairwise: Any = "linear",
        decoder: Any = "max_marginal",
        l2: Any = "auto",
        fit_intercept: bool = True,
        start: Any = "independent",
        guard: Any = "auto",
        class_weight: Any = None,
        n_labels: int | None = None,
        dtype: str = "float32",
        n_jobs: int = 1,
        random_state: int | None = 0,
        verbose: int = 0,
        l1: float = 0.0,
        structure: Any = "graph",
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
        self.guard = guard
        self.class_weight = class_weight
        self.n_labels = n_labels
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.l1 = l1
        self.structure = structure

    # ---- parameters ----

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters; with ``deep`` also those of the parts."""
        params = super().get_params(deep=False)
        return with_parts(params) if deep else params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of parts rewrite the spec, and a spec given as a string stays one."""
        own = self.get_params(deep=False)
        nested: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            head, _, tail = key.partition("__")
            if head not in own:
                raise InputError(f"{type(self).__name__} has no parameter {head!r}; it takes {', '.join(own)}.")
            if tail:
                nested.setdefault(head, {})[tail] = value
            else:
                setattr(self, head, value)
        for head, changes in nested.items():
            setattr(self, head, changed_part(head, getattr(self, head), changes))
        return self

    def _settings(self) -> Settings:
        params = self.get_params(deep=False)
        if self._fixed is not None:
            params["structure"] = self._fixed(
                **{field.name: params[field.name] for field in dataclasses.fields(self._fixed)}
            )
        return Settings(params)

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
        tile: Any = None,
    ) -> Self:
        """Learn the weights. A fit that fails or is interrupted leaves the model as it was.

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
            Inside a callback the estimator is the model so far: it predicts and scores with the weights ``w``.
        cluster : Dask client or cluster, ``tcp://`` or ``tls://`` address of a scheduler, or ``local:N``, optional
            Whose workers compute the sums over examples; the result is the same, byte for byte.
        n_chunks : int
            Into how many parts sums over examples are cut, for threads and workers alike: at most so many of them work at
            once. Another number changes the last bits of the weights.
        tile : int or tuple of int, optional
            Images and volumes of any size, few of whose labels are known: learn from the labelled regions alone, in tiles of
            this size with the halo that inference needs. Losses that are sums over variables have the same value as on the
            whole images, to rounding.
        """
        options: dict[str, Any] = {"checkpoint": checkpoint, "resume": resume}
        options |= {"checkpoint_seconds": checkpoint_seconds, "checkpoint_iterations": checkpoint_iterations}
        asked = {"sample_weight": sample_weight, "callbacks": callbacks, "validation": validation, "n_chunks": n_chunks}
        check(options | asked, FIT)
        if tile is not None:
            from backfield.estimators._training_tiles import labelled_crops

            X, y, sample_weight = labelled_crops(self._settings(), X, y, sample_weight, tile)
        arguments = (X, y, sample_weight, validation, int(n_chunks), callbacks)
        with using(cluster):
            self._fitted = _fitting.fit(self._settings(), *arguments, self._showing, options)
        return self

    @contextmanager
    def _showing(self, state: Fitted) -> Iterator[None]:
        """Be another model for a while."""
        before, self._fitted = self._fitted, state
        try:
            yield
        finally:
            self._fitted = before

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Do one pass of the ``sgd`` learner over some more examples."""
        self._fitted = _fitting.partial_fit(self._settings(), X, y, sample_weight, classes, self._fitted)
        return self

    def problem(self, X: Any, y: Any = None, sample_weight: Any = None) -> Problem:
        """Return what :meth:`fit` hands to the learner: the objective over the examples, as a function of the weights."""
        return _fitting.prepare(self._settings(), X, y, sample_weight).problem

    # ---- what was learned ----

    def _state(self) -> Fitted:
        if self._fitted is None:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit first.")
        return self._fitted

    def _attributes(self) -> Fitted:
        if self._fitted is None:  # as any attribute that a fit would set
            raise AttributeError(f"this {type(self).__name__} is not fitted yet.")
        return self._fitted

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there are weights."""
        return self._fitted is not None

    @property
    def weights_(self) -> np.ndarray:
        """The weights that were learned."""
        return self._attributes().weights

    @weights_.setter
    def weights_(self, weights: np.ndarray) -> None:
        self._fitted = dataclasses.replace(self._state(), weights=weights)

    @property
    def classes_(self) -> np.ndarray:
        """The labels, in the order of the last axis of ``predict_proba``."""
        return self._attributes().learned.classes.values

    @property
    def layout_(self) -> WeightLayout:
        """Which part of the weights serves which type of variable or factor."""
        return self._attributes().learned.layout

    @property
    def structure_(self) -> Structure:
        """The structure of the data that were learned from."""
        return self._attributes().learned.reader.structure

    @property
    def inference_(self) -> str | None:
        """Spec of the inference that the fit chose; None where ``inference`` was given."""
        return self._attributes().learned.inference if self._settings().open_inference else None

    @property
    def feature_names_(self) -> dict[str, int] | None:
        """Columns of named features; None where X holds arrays."""
        return self._attributes().learned.reader.names

    @property
    def classifier_(self) -> Any:
        """The fitted classifier below the field, with ``unary=Classifier(...)``."""
        return self._attributes().learned.classifier

    @property
    def n_features_in_(self) -> int:
        """Features of a variable (of the first type)."""
        return self.layout_.unary[0].n_features

    @property
    def trace_(self) -> list[dict[str, Any]]:
        """A row for each iteration of the learner."""
        return self._attributes().trace

    @property
    def converged_(self) -> bool | None:
        """Whether the learner has converged."""
        return self._attributes().converged

    @property
    def message_(self) -> str:
        """Why the learner stopped."""
        return self._attributes().message

    @property
    def preprocessing_(self) -> dict[str, Any] | None:
        """How the features were made: plain JSON of the user's, which goes into the model file."""
        return self._attributes().preprocessing

    @preprocessing_.setter
    def preprocessing_(self, preprocessing: dict[str, Any] | None) -> None:
        self._fitted = dataclasses.replace(self._state(), preprocessing=preprocessing)

    def __sklearn_tags__(self) -> Any:
        """Say that X is no table, and labels are one array per example, also through a pipeline."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.classifier_tags = StructuredTags()
        return tags

    # ---- predicting ----

    def _predictor(self) -> Predictor:
        state, settings = self._state(), self._settings()
        if self.inference_ is not None:
            settings = Settings(settings.params | {"inference": self.inference_})
        return Predictor(Assembler(settings, state.learned), state.weights)

    def predict(self, X: Any, cluster: Any = None, *, tile: Any = None, out: Any = None) -> Any:
        """Return predicted labels, shaped as the input.

        Parameters
        ----------
        X
            Entries as for :meth:`fit`. With ``tile`` they may be arrays of any size that are read by parts (memory maps,
            zarr, lazy features), and X may be one such array, whose labels are then returned alone.
        cluster
            As in :meth:`fit`.
        tile : int or tuple of int, optional
            Images and volumes: predict tile by tile, of so many pixels along each axis, with threads or workers over tiles.
            The result is that of the whole, to the bit (behind a :class:`Classifier`, to 1e-6).
        out : array, or path of an ``.npy`` or ``.zarr``, or a list of these, optional
            With ``tile``: where the labels are written, one for each entry of X.
        """
        if tile is not None:
            return self._tiled(X, tile, out, cluster, labels=True)
        _refuse_out(out)
        with using(cluster):
            predictor = self._predictor()
            return Ragged(self._stream(predictor.labels, X, many=predictor.many_labels))

    def predict_proba(self, X: Any, cluster: Any = None, *, tile: Any = None, out: Any = None) -> Any:
        """Return the marginals of every variable, shaped as the input with the labels as last axis.

        Parameters as in :meth:`predict`.
        """
        if tile is not None:
            return self._tiled(X, tile, out, cluster, marginals=True)
        _refuse_out(out)
        with using(cluster):
            predictor = self._predictor()
            return Ragged(self._stream(predictor.marginals, X, many=predictor.many_marginals))

    def predict_each(self, X: Any, cluster: Any = None, *, tile: Any = None, out: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield labels and marginals of each example in order, as they come; what is yielded is not held.

        With ``tile``, ``out`` may list a pair of places for each example (see :meth:`predict`).
        """
        workers = None if cluster is None else open_cluster(cluster)
        try:
            if tile is not None:
                yield from self._each_tiled(X, tile, out, workers, labels=True, marginals=True)
            else:
                _refuse_out(out)
                predictor = self._predictor()
                yield from self._stream(predictor.both, X, workers, predictor.many_both)
        finally:
            if workers is not None:
                workers.close()

    def _tiled(self, X: Any, tile: Any, out: Any, cluster: Any, **wanted: bool) -> Any:
        """Return what is wanted of each entry of X, or of the one array that X is."""
        shape: tuple[int, ...] = getattr(X, "shape", ())
        single = len(shape) == self.structure_.n_axes + 1 > 1 and shape[-1] == self.n_features_in_
        with using(cluster) as workers:
            if single:
                X, out = [X], [out]
            found = [each for (each,) in self._each_tiled(X, tile, out, workers, **wanted)]
        return found[0] if single else found

    def _each_tiled(
        self, X: Any, tile: Any, out: Any, cluster: Any, labels: bool = False, marginals: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        from backfield.estimators._tiles import TilePredictor

        answer, n_jobs = TilePredictor(self._predictor(), tile, labels, marginals), self._settings().n_jobs
        X = checked_sequence(open_data(X)[0], "X")
        words = f"a list of one array or path for each of the {len(X)} entries of X"
        outs = [None] * len(X) if out is None else list(checked("out", out, several(words)))
        if len(outs) != len(X):
            raise InputError(f"out must list one array or path for each of the {len(X)} entries of X.")
        for number in range(len(X)):
            places = outs[number]
            if places is None or not (labels and marginals):
                places = (places,) * (labels + marginals)
            elif len(list(checked("out", places, several("a list of pairs of places")))) != 2:
                raise InputError("out must list a pair of places, for labels and for marginals, for each entry of X.")
            yield answer(X[number], number, tuple(places), n_jobs, cluster or active())

    def _stream(self, answer: Any, X: Any, cluster: Any = None, many: Any = None) -> Iterator[Any]:
        X, settings = checked_sequence(open_data(X)[0], "X"), self._settings()
        cluster = cluster or active()
        if many is None or cluster is not None or not settings.structure.chains:
            return stream(answer, X, settings.n_jobs, cluster)
        return stream_many(many, X, settings.n_jobs)

    def potentials(self, x: Any) -> Potentials:
        """Return the log-potentials of one example."""
        predictor = self._predictor()
        return predictor.theta(predictor.sample(x))

    def marginals(self, sample: Any, given: Any = None) -> Result:
        """Return marginals (also of factors) and log Z of one example, with the labels in ``given`` (-1 = free) fixed."""
        predictor = self._predictor()
        instance = predictor.sample(sample)
        if given is not None:
            instance = dataclasses.replace(instance, observed=predictor.observed(given, instance))
        return predictor.infer(instance)

    def plot(self, x: Any, y: Any = None, axes: Any = None) -> Any:
        """Draw the prediction for one example, its marginals and their uncertainty, and the truth if given; return the axes.

        ``axes`` are three of them, or four with ``y``, in a row.
        """
        from backfield import drawing

        labels, marginals = next(iter(self.predict_each([x])))
        classes = self.classes_.tolist()
        row = drawing.axes(axes, 3 if y is None else 4)
        panels = [("prediction", labels)] + ([] if y is None else [("truth", y)])
        for ax, (title, values) in zip(row, panels, strict=False):
            drawing.draw_labels(ax, self._positions(values), classes).set_title(title)
        drawing.draw_marginals(row[len(panels)], marginals, classes).set_title("marginals")
        drawing.draw_uncertainty(row[len(panels) + 1], marginals).set_title("uncertainty")
        return row

    def _positions(self, labels: Any) -> np.ndarray:
        """Return labels as positions in ``classes_``, shaped as they are; hidden ones are -1."""
        values = np.asarray(labels)
        return self._state().learned.classes.encode(values.reshape(-1)).reshape(values.shape)

    def _repr_html_(self) -> str:
        from backfield import drawing

        rows: dict[str, Any] = {"model": repr(self)}
        if self._fitted is not None:
            rows |= {"labels": ", ".join(map(str, self.classes_[:20])), "weights": len(self.weights_), "fit": self.message_}
        return drawing.html_table(type(self).__name__ + (" (fitted)" if self._fitted is not None else ""), rows)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy over all labelled variables together."""
        predictor = self._predictor()
        X, y = open_data(X, y)
        if y is None:
            raise InputError("score needs labels: y, or a folder that was packed with labels.")
        X, y = checked_sequence(X, "X"), checked_sequence(y, "y")
        if len(X) != len(y):
            raise InputError(f"received {len(X)} examples but {len(y)} labelings.")
        weight = checked_sample_weight(sample_weight, len(y))
        counts = np.array(list(self._stream(predictor.scored, mapped(_pair, X, y))), dtype=np.float64).reshape(-1, 2)
        right, total = weight @ counts
        if total == 0:
            raise InputError("there is nothing to score: all labels are hidden (-1).")
        return float(right / total)

    def fitted_module(self, kind: str = "unary", number: int = 0) -> Any:
        """Return a copy of the network that is the energy of ``kind`` (of type ``number``), with the learned weights."""
        state = self._state()
        blocks = {"unary": state.learned.layout.unary, "pairwise": state.learned.layout.factors}[kind]
        block = blocks[number]
        if not isinstance(block.energy, NetworkEnergy):
            raise InputError(f"the {kind} energy is {block.energy!r}, not a network.")
        return block.energy.fitted(state.weights[block.start : block.stop])

    def save(self, path: Any) -> None:
        """Write the model to a file that :func:`backfield.load` reads back without running code."""
        from backfield.estimators.model_file import save

        save(self, path)


def _refuse_out(out: Any) -> None:
    if out is not None:
        raise InputError("out is for predictions by parts; give tile, too.")


def _pair(x: Any, y: Any, number: int) -> tuple[Any, Any]:
    return x, y


def _initialiser(structure: type, defaults: dict[str, Any]) -> Any:
    """Return ``__init__`` of an estimator with a fixed structure: its fields are parameters, ``structure`` is none."""
    own = [each for each in inspect.signature(CRF.__init__).parameters.values() if each.name != "structure"]
    own = [each.replace(default=defaults.get(each.name, each.default)) for each in own]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    more = [
        inspect.Parameter(field.name, kind, default=field.default, annotation=field.type)
        for field in dataclasses.fields(structure)
    ]
    signature = inspect.Signature([*own, *more], return_annotation=None)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name, value in list(bound.arguments.items())[1:]:
            setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__
