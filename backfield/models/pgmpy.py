"""Models of pgmpy, to and fro; pgmpy is imported when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backfield.errors import InputError

if TYPE_CHECKING:
    from backfield.models.model import Model


def _classes() -> dict[str, Any]:
    try:
        from pgmpy import models
        from pgmpy.factors.discrete import DiscreteFactor, TabularCPD
    except ImportError as error:
        raise InputError("pgmpy is not installed: pip install pgmpy.") from error
    bayes = vars(models).get("DiscreteBayesianNetwork") or vars(models)["BayesianNetwork"]
    markov = vars(models).get("DiscreteMarkovNetwork") or vars(models)["MarkovNetwork"]
    return {"bayes": bayes, "markov": markov, "graph": models.FactorGraph, "factor": DiscreteFactor, "cpd": TabularCPD}


def read_pgmpy(network: Any) -> tuple[dict[str, list[Any]], list[tuple[list[str], np.ndarray]], dict[str, Any]]:
    """Return the variables, factors and conditionals of a discrete network of pgmpy."""
    classes = _classes()
    if isinstance(network, classes["bayes"]):
        cpds = network.get_cpds()
        states = _states(cpds)
        return states, [], {_text(cpd.variable): _conditional(cpd) for cpd in cpds}
    if isinstance(network, (classes["markov"], classes["graph"])):
        factors = network.get_factors()
        return _states(factors), [([_text(v) for v in f.variables], np.asarray(f.values)) for f in factors], {}
    raise InputError(
        f"received {type(network).__name__}; a discrete Bayesian, Markov or factor-graph model of pgmpy is needed."
    )


def _text(name: Any) -> str:
    return name if isinstance(name, str) else str(name)


def _states(tables: list[Any]) -> dict[str, list[Any]]:
    """Return the states of all variables; each pgmpy table lists only its own."""
    out: dict[str, list[Any]] = {}
    for table in tables:
        for name in table.variables:
            out.setdefault(_text(name), list(table.state_names[name]))
    if not out:
        raise InputError("the network has no tables; add its CPDs or factors first.")
    return out


def _conditional(cpd: Any) -> tuple[list[str], np.ndarray]:
    """Return parents and table; the variable's own axis comes first in pgmpy, last here."""
    return [_text(name) for name in cpd.variables[1:]], np.moveaxis(np.asarray(cpd.values), 0, -1)


def make_pgmpy(model: Model) -> Any:
    """Return a Bayesian network of pgmpy where the model is one, else a Markov network."""
    classes = _classes()
    return _bayes(model, classes) if model.is_directed else _markov(model, classes)


def _bayes(model: Model, classes: dict[str, Any]) -> Any:
    network = classes["bayes"]()
    network.add_nodes_from(model.names)
    network.add_edges_from([(parent, name) for name in model.names for parent in model.parents(name)])
    for name in model.names:
        parents, table = model.conditional(name)
        cards = [len(model.states[parent]) for parent in parents]
        states = {other: list(model.states[other]) for other in (name, *parents)}
        values = np.moveaxis(table, -1, 0).reshape(table.shape[-1], -1)
        network.add_cpds(classes["cpd"](name, table.shape[-1], values, parents or None, cards or None, state_names=states))
    return network


def _markov(model: Model, classes: dict[str, Any]) -> Any:
    theta = model.theta
    network = classes["markov"]()
    network.add_nodes_from(model.names)
    tables = [([i], row) for i, row in enumerate(theta.unary)]
    tables += list(zip(theta.graph.factors, theta.factors, strict=True))
    for scope, table in tables:
        names = [model.names[int(i)] for i in scope]
        network.add_edges_from([(a, b) for k, a in enumerate(names) for b in names[k + 1 :]])
        states = {name: list(model.states[name]) for name in names}
        shift = table.max() if np.isfinite(table.max()) else 0.0
        network.add_factors(classes["factor"](names, table.shape, np.exp(table - shift), state_names=states))
    return network
