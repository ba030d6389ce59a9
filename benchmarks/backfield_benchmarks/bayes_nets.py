"""Every single-variable posterior of the networks of bnlearn, beside pgmpy and pyAgrum, in one run.

    pip install pgmpy pyagrum
    python -m backfield_benchmarks.bayes_nets [NAME ...] [--seeds 3] [--seconds 300] [--json FILE]

Evidence: a tenth of the variables (at least one), with the states of a seeded sample. Ours is ``model.marginals(given)``,
one pass for all variables, and beside it ``model.table(name, given)`` for each variable, as a new model would answer;
pgmpy's is one ``VariableElimination.query`` for each variable, pyAgrum's one ``LazyPropagation``. All get the same tables.
Reading is not counted, making the inference object is. The others run in child processes with limits on time and memory.
"""

import argparse
import json
import multiprocessing
import resource
import time
import warnings

import numpy as np

from backfield.datasets import data_dir
from backfield.models import Model

MEMORY = 8 * 2**30


def evidence(model, seed):
    rng = np.random.default_rng(seed)
    count = max(1, len(model.names) // 10)
    row = model.sample(1, seed=seed)
    return {str(name): next(iter(row[name])) for name in rng.choice(model.names, size=count, replace=False)}


def ours(model, given):
    start = time.perf_counter()
    found = model.marginals(given)
    return time.perf_counter() - start, {name: row for name, row in found.items() if name not in given}


def one_by_one(model, given):
    model = Model._make(model.variables, model.theta, model._conditional)  # it knows no answers yet
    start = time.perf_counter()
    found = {name: model.table(name, given).values for name in model.names if name not in given}
    return time.perf_counter() - start, found


def pgmpy(model, given):
    from pgmpy.inference import VariableElimination

    network = model.to_pgmpy()
    start = time.perf_counter()
    engine = VariableElimination(network)
    found = {}
    for name in model.names:
        if name not in given:
            found[name] = engine.query([name], evidence=given, show_progress=False)
    seconds = time.perf_counter() - start
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
    start = time.perf_counter()
    engine = gum.LazyPropagation(network)
    engine.setEvidence(labels)
    engine.makeInference()
    found = {name: engine.posterior(safe[name]).toarray() for name in model.names if name not in given}
    return time.perf_counter() - start, found


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


def run(path, seeds, seconds):
    model = Model.read(path)
    rows = []
    for seed in range(seeds):
        given = evidence(model, seed)
        row = {"network": path.name.split(".")[0], "variables": len(model.names), "seed": seed}
        row["ours"], found = ours(model, given)
        row["ours one by one"], single = one_by_one(model, given)
        row["one by one differs"] = difference(found, single)
        for call in (pgmpy, pyagrum):
            taken, theirs = limited(call, model, given, seconds)
            row[call.__name__] = taken
            row[f"{call.__name__} differs"] = None if theirs is None else difference(found, theirs)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


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
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--json")
    options = parser.parse_args()
    paths = sorted(data_dir().joinpath("bnlearn").glob("*.bif.gz"))
    wanted = [path for path in paths if not options.names or path.name.split(".")[0] in options.names]
    warm = Model.read(next(path for path in paths if path.name.startswith("asia")))
    ours(warm, evidence(warm, 0))
    one_by_one(warm, evidence(warm, 0))
    rows = [row for path in wanted for row in run(path, options.seeds, options.seconds)]
    for other in ("pgmpy", "pyagrum"):
        print(summary(rows, other))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
