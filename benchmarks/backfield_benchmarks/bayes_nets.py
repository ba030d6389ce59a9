"""Every single-variable posterior of the networks of bnlearn, beside pgmpy and pyAgrum, in one run.

    pip install pgmpy pyagrum
    python -m backfield_benchmarks.bayes_nets [NAME ...] [--seeds 3] [--repeats 3] [--seconds 300] [--out bayes-nets]

Evidence: a tenth of the variables (at least one), with the states of a seeded sample. Ours is ``model.marginals(given)``,
one pass for all variables, and beside it ``model.table(name, given)`` for each variable; pgmpy's is one
``VariableElimination.query`` for each variable, pyAgrum's one ``LazyPropagation``. All get the same tables, and all give the
same answers: every posterior of a single variable. Reading is not counted; everything else is, planning too: ours is a
model that knows no answers and no orders yet. Times are medians of processor seconds over repeats that take turns.
The others run in child processes with limits on time and memory.
"""

import argparse
import multiprocessing
import resource
import time
import warnings
from contextlib import suppress
from functools import partial
from importlib import import_module

import numpy as np

from backfield.datasets import data_dir
from backfield.models import Model
from backfield_benchmarks.cells import Cells

MEMORY = 8 * 2**30
clock = time.process_time


def evidence(model, seed):
    rng = np.random.default_rng(seed)
    count = max(1, len(model.names) // 10)
    row = model.sample(1, seed=seed)
    return {str(name): next(iter(row[name])) for name in rng.choice(model.names, size=count, replace=False)}


def new(model):
    """Return the same model, which knows no orders and no answers yet."""
    return Model._make(model.variables, model.theta, model._conditional)


def ours(model, given):
    model = new(model)
    start = clock()
    found = model.marginals(given)
    return clock() - start, {name: row for name, row in found.items() if name not in given}


def one_by_one(model, given):
    model = new(model)
    start = clock()
    found = {name: model.table(name, given).values for name in model.names if name not in given}
    return clock() - start, found


def pgmpy(model, given):
    from pgmpy.inference import VariableElimination

    network = model.to_pgmpy()
    start = clock()
    engine = VariableElimination(network)
    found = {}
    for name in model.names:
        if name not in given:
            found[name] = engine.query([name], evidence=given, show_progress=False)
    seconds = clock() - start
    order = {name: [found[name].state_names[name].index(state) for state in model.states[name]] for name in found}
    return seconds, {name: np.asarray(found[name].values)[order[name]] for name in found}


def pyagrum(model, given):
    import pyagrum as gum

    network = gum.BayesNet()
    safe = {name: f"v{i}" for i, name in enumerate(model.names)}
    for name, states in model.states.items():
        network.add(gum.LabelizedVariable(safe[name], safe[name], [f"s{x}" for x in range(len(states))]))
    for name in model.names:
        for parent in model.parents(name):
            network.addArc(safe[parent], safe[name])
    for name in model.names:
        parents, table = model.conditional(name)
        cpt = network.cpt(safe[name])
        axes = [safe[parent] for parent in parents] + [safe[name]]
        wanted = [axes.index(other) for other in reversed(cpt.names)]  # the array has the axes in reverse order
        cpt[:] = np.ascontiguousarray(table.transpose(wanted))
    labels = {safe[name]: model.states[name].index(state) for name, state in given.items()}
    start = clock()
    engine = gum.LazyPropagation(network)
    engine.setEvidence(labels)
    engine.makeInference()
    found = {name: engine.posterior(safe[name]).toarray() for name in model.names if name not in given}
    return clock() - start, found


def _child(connection, call, model, given):
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        connection.send(call(model, given))
    except BaseException as error:  # MemoryError, numpy's limits, whatever: it has not solved the network
        connection.send((f"{type(error).__name__}: {error}"[:80], None))


def limited(call, model, given, seconds):
    """Return (seconds or why not, posteriors), computed in a child process."""
    context = multiprocessing.get_context("fork")
    mine, other = context.Pipe()
    process = context.Process(target=_child, args=(other, call, model, given))
    process.start()
    other.close()
    try:
        answer = mine.recv() if mine.poll(seconds) else (f"not within {seconds:g} s", None)
    except EOFError:
        answer = "killed", None
    process.kill()
    process.join()
    return answer


def difference(a, b):
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


def run(model, seed, repeats, seconds):
    given = evidence(model, seed)
    times: dict[str, list] = {"ours": [], "ours one by one": [], "pgmpy": [], "pyagrum": []}
    row: dict[str, object] = {"variables": len(model.names)}
    for _ in range(repeats):
        taken, found = ours(model, given)
        times["ours"].append(taken)
        taken, single = one_by_one(model, given)
        times["ours one by one"].append(taken)
        row["one by one differs"] = difference(found, single)
        for call in (pgmpy, pyagrum):
            name = call.__name__
            if times[name] and not isinstance(times[name][-1], float):
                continue
            taken, theirs = limited(call, model, given, seconds)
            times[name].append(taken)
            row[f"{name} differs"] = None if theirs is None else difference(found, theirs)
    for name, values in times.items():
        row[name] = float(np.median(values)) if all(isinstance(value, float) for value in values) else values[-1]
    return row


def summary(rows, other):
    both = [row for row in rows if isinstance(row[other], float)]
    if not both:
        return f"{other} solved none"
    theirs, mine, single = (sum(row[key] for row in both) for key in (other, "ours", "ours one by one"))
    worst = max(row[f"{other} differs"] for row in both)
    ratios = [np.log(row[other] / row["ours"]) for row in both]
    return (
        f"{other}: solved {len(both)} of {len(rows)} runs; {theirs:.3f} s, ours {mine:.3f} s ({theirs / mine:.0f} x), "
        f"one by one {single:.3f} s ({theirs / single:.1f} x); largest difference {worst:.1e}; "
        f"geometric mean of the ratios {np.exp(np.mean(ratios)):.0f} x, least {np.exp(min(ratios)):.1f} x"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--out", default="bayes-nets")
    options = parser.parse_args()
    paths = sorted(data_dir().joinpath("bnlearn").glob("*.bif.gz"))
    for module in ("pgmpy.inference", "pyagrum"):  # once, not in every child
        with suppress(ImportError):
            import_module(module)
    warm = Model.read(next(path for path in paths if path.name.startswith("asia")))
    for call in (ours, one_by_one):
        call(warm, evidence(warm, 0))
    cells = Cells(options.out, "python -m backfield_benchmarks.bayes_nets")
    for path in paths:
        name = path.name.split(".")[0]
        if options.names and name not in options.names:
            continue
        model = Model.read(path)
        for seed in range(options.seeds):
            cells.get(f"{name} {seed}", partial(run, model, seed, options.repeats, options.seconds))
    for other in ("pgmpy", "pyagrum"):
        print(summary(list(cells.rows.values()), other))


if __name__ == "__main__":
    main()
