"""The same fit on real schedulers and worker processes: same bytes, faults, bad addresses."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import backfield as bf
from backfield.cli.app import run

distributed = pytest.importorskip("distributed")

from backfield.training.execution import using  # noqa: E402
from backfield.training.execution.cluster import open_cluster  # noqa: E402

LEARNERS = {"lbfgs": "lbfgs(max_iter=6)", "sgd": "sgd(epochs=2, batch_size=5)"}
SWEEPS = "tree_reweighted(n_iter=3)"


def grid(**settings):
    """A model without trials on held-out labels: those are hundreds of sums, which one test of its own sends to workers."""
    return bf.GridCRF(inference=SWEEPS, **settings)


def images(n=23, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(12 + k % 3, 13, 3)).astype(np.float32) for k in range(n)]
    return X, [(x[:, :, 0] > 0).astype(np.int64) - (x[:, :, 1] > 1.5) for x in X]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return bf.write_shards(tmp_path_factory.mktemp("packed") / "p", *images(), shard_bytes=10_000)


@pytest.fixture(scope="module")
def expected(packed):
    """Weights by threads on one machine."""
    fits = {name: grid(learner=learner, n_jobs=2).fit(packed) for name, learner in LEARNERS.items()}
    return {name: crf.weights_.tobytes() for name, crf in fits.items()}


@pytest.fixture(scope="module")
def one():
    """A scheduler and one worker process; ``two`` adds another."""
    cluster = open_cluster("local:1")
    yield cluster.client
    cluster.close()


@pytest.fixture(scope="module")
def two(one):
    one.cluster.scale(2)
    one.wait_for_workers(2, timeout=120)
    return one


@pytest.mark.parametrize("name", LEARNERS)
def test_one_worker_gives_the_same_bytes(one, packed, expected, name):
    assert grid(learner=LEARNERS[name]).fit(packed, cluster=one).weights_.tobytes() == expected[name]


def test_nobody_outside_can_reach_local_workers(one):
    pids = [os.getpid(), *one.run(os.getpid).values()]
    inodes = {link for pid in pids for fd in os.listdir(f"/proc/{pid}/fd") if (link := _link(pid, fd))}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                listening.append(words[1].split(":")[0])
    assert len(listening) >= 2
    assert set(listening) <= {"0100007F", "00000000000000000000000001000000"}


def _link(pid, fd):
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return None


@pytest.mark.parametrize("name", LEARNERS)
def test_two_workers_give_the_same_bytes(two, packed, expected, name):
    assert grid(learner=LEARNERS[name]).fit(packed, cluster=two).weights_.tobytes() == expected[name]


def test_data_in_memory_and_chains(two, expected):
    X, Y = images()
    assert grid(learner=LEARNERS["lbfgs"]).fit(X, Y, cluster=two).weights_.tobytes() == expected["lbfgs"]
    chains = [x.reshape(-1, 3)[: 5 + k % 3] for k, x in enumerate(X)]
    labels = [y.reshape(-1)[: len(x)] + 1 for x, y in zip(chains, Y, strict=True)]
    ours, theirs = (bf.ChainCRF(learner="lbfgs(max_iter=8)").fit(chains, labels, cluster=c) for c in (two, None))
    assert ours.weights_.tobytes() == theirs.weights_.tobytes()


def test_held_out_labels_decide_the_same(two):
    X, Y = images(6)
    here, there = (bf.GridCRF(learner="lbfgs(max_iter=2)").fit(X, Y, cluster=c) for c in (None, two))
    assert there.message_ == here.message_ and "held-out" in here.message_
    assert there.weights_.tobytes() == here.weights_.tobytes()


def test_bytes_of_an_iteration_do_not_depend_on_the_data(two):
    sizes = []
    for n in (16, 64):
        X, Y = images(n)
        with using(two):
            problem = grid(start="zero").problem(X, Y)
            problem.shared.counts_bytes = True
            problem.value_and_gradient(np.zeros(problem.n_weights))
            sizes.append((problem.shared.last.bytes_out, problem.shared.last.bytes_back))
    assert max(map(sum, sizes)) < 20 * 8 * problem.n_weights + 4000


def test_predictions(two, packed):
    crf = grid(learner="lbfgs(max_iter=3)").fit(packed, cluster=two.cluster)  # Dask's clusters will do, too
    for mine, theirs in zip(crf.predict(packed, cluster=two), crf.predict(packed), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    X, _ = images()
    for (labels, p), theirs in zip(crf.predict_each(X, cluster=two), crf.predict_proba(X), strict=True):
        assert p.tobytes() == theirs.tobytes() and labels.shape == p.shape[:-1]


def test_dense_fields(two):
    X, Y = images(7)
    how = {
        "kernels": ["position(2)", "bilateral(4, 1)"],
        "inference": "mean_field(n_iter=2)",
        "learner": "lbfgs(max_iter=2)",
    }
    crf = bf.DenseCRF(**how).fit(X, Y)
    other = bf.DenseCRF(**how).fit(X, Y, cluster=two)
    assert other.weights_.tobytes() == crf.weights_.tobytes() and other.message_ == crf.message_
    assert other.predict_proba(X, cluster=two)[3].tobytes() == crf.predict_proba(X)[3].tobytes()


def test_command_line(two, tmp_path, packed, expected, capsys):
    address = two.scheduler.address
    model = tmp_path / "m.bf"
    fit = ["fit", str(packed.folder), "--inference", SWEEPS, "--learner", LEARNERS["lbfgs"], "-o", str(model)]
    assert run([*fit, "--quiet", "--cluster", address]) == 0
    assert bf.load(model).weights_.tobytes() == expected["lbfgs"]
    assert run(["predict", str(model), str(packed.folder), "-o", str(tmp_path / "out"), "--cluster", address]) == 0
    assert len(list((tmp_path / "out").glob("*.png"))) == len(packed)
    capsys.readouterr()
    assert run(["evaluate", str(model), str(packed.folder), "--json", "--cluster", address]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(bf.load(model).score(packed))
    assert run(["reproduce", "d13-fig1", "--quick", "--cluster", "tcp://127.0.0.1"]) == 2
    assert "127.0.0.1" in capsys.readouterr().err


WOLFE = "frank_wolfe(epochs=3, tol=0, batch_size=9, cache=2, projection='supermodular')"
OTHERS = {
    "frank_wolfe": {"loss": "max_margin", "learner": WOLFE, "l2": 0.01},
    "self_training": {"loss": "max_margin", "learner": f"self_training(learner={WOLFE!r})", "l2": 0.01, "start": "zero"},
    "smd": {"learner": "smd(epochs=2, batch_size=8)"},
    "stages": {"learner": "stages(['lbfgs(max_iter=2)', 'sgd(epochs=1)'], losses=['mse', None])"},
}


def others(name):
    """Images for a learner, every third with hidden labels where it fills them in."""
    X, Y = images()
    hidden = name == "self_training"
    return X, [np.where((k % 3 > 0) | (not hidden), np.maximum(y, 0), y) for k, y in enumerate(Y)]


@pytest.mark.parametrize("name", OTHERS)
def test_learners_of_other_kinds_give_the_same_bytes(two, name, tmp_path):
    X, Y = others(name)
    here = grid(n_jobs=2, **OTHERS[name]).fit(X, Y).weights_.tobytes()
    assert grid(**OTHERS[name]).fit(X, Y, cluster=two).weights_.tobytes() == here
    packed = bf.write_shards(tmp_path / "p", X, Y, shard_bytes=10_000)
    assert grid(**OTHERS[name]).fit(packed, cluster=two).weights_.tobytes() == here


DESCENT = {
    "linear": ("linear", "linear"),
    "constant": ("linear", "constant"),
    "trees": ("boosted_trees(max_leaves=4)", "linear"),
    "networks": ("mlp(hidden=9, n_epochs=2, batch=200)", "zero"),
}


def descent(kind, **settings):
    unary, pairwise = DESCENT[kind]
    learner = "oracle_descent(n_rounds=4, sweeps=5, tol=0.0)"
    return bf.GridCRF(unary=unary, pairwise=pairwise, learner=learner, inference="smoothed_lp(n_iter=5)", **settings)


def parameters(crf):
    """All bytes that were learned, and the trace without its times."""
    functions = [block.energy.function for block in crf.layout_.unary + crf.layout_.factors]
    arrays = [array.tobytes() for function in functions for _, array in sorted(function.arrays().items())]
    return arrays, [{key: value for key, value in row.items() if key != "seconds"} for row in crf.trace_]


@pytest.mark.parametrize("kind", DESCENT)
def test_oracle_descent_gives_the_same_bytes(two, packed, kind, tmp_path):
    """Hidden labels and all; the linear oracles see sums, trees and networks gather their rows."""
    pytest.importorskip({"trees": "lightgbm", "networks": "torch"}.get(kind, "numpy"))
    here = parameters(descent(kind, n_jobs=2).fit(packed))
    assert parameters(descent(kind).fit(*images(), cluster=two)) == here
    path = tmp_path / "fit.ckpt"
    descent(kind).fit(packed, cluster=two, checkpoint=path, callbacks=[lambda i, w, row: i == 2])
    assert parameters(descent(kind).fit(packed, cluster=two, checkpoint=path, resume=True)) == here
    shutil.copy(path, tmp_path / "done.ckpt")  # a fit that is done is read, nothing is run
    assert parameters(descent(kind).fit(packed, checkpoint=tmp_path / "done.ckpt", resume=True)) == here


def test_states_that_are_sent_out_anew_change_nothing(two, packed, monkeypatch):
    from backfield.training.execution import resident

    here = parameters(descent("linear").fit(packed))
    monkeypatch.setattr(resident, "REMEMBERED_STEPS", 3)
    assert parameters(descent("linear").fit(packed, cluster=two)) == here


def test_oracle_descent_with_validation_data(two, packed):
    held = images(4, seed=3)
    here, there = (parameters(descent("linear").fit(packed, validation=held, cluster=c)) for c in (None, two))
    assert here == there


@pytest.mark.parametrize("learner", ["frank_wolfe", "oracle_descent"])
def test_these_survive_the_loss_of_a_worker(two, learner):
    X, Y = others("frank_wolfe")
    make = (lambda: grid(**OTHERS["frank_wolfe"])) if learner == "frank_wolfe" else (lambda: descent("linear"))
    found = (lambda crf: crf.weights_.tobytes()) if learner == "frank_wolfe" else parameters
    here = found(make().fit(X, Y))
    killed = []

    def kill(iteration, w, row):
        if not killed:
            killed.append(min(two.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    assert found(make().fit(X, Y, cluster=two, callbacks=[kill])) == here
    assert killed
    two.wait_for_workers(2, timeout=120)


def test_a_damaged_shard_is_named_by_the_worker(two, tmp_path):
    shards = bf.write_shards(tmp_path / "p", *images(), shard_bytes=10_000)
    file = shards.folder / shards.shards[-1].file
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    seen = []
    with pytest.raises(bf.InputError, match=rf"{file.name} is damaged"):
        grid(learner="sgd(epochs=1)", start="zero").fit(shards, cluster=two, callbacks=[lambda *row: seen.append(row)])
    assert not seen


def test_other_versions_are_refused(two, packed):
    worker = sorted(two.scheduler_info(n_workers=-1)["workers"])[0]
    two.run(_pretend, "0.0.1", workers=[worker])
    try:
        with pytest.raises(
            bf.InputError, match=rf"versions differ .* {worker}: backfield {bf.__version__} here, 0.0.1 there"
        ):
            grid().fit(packed, cluster=two)
    finally:
        two.run(_pretend, bf.__version__, workers=[worker])


def _pretend(version):
    import backfield

    backfield.__version__ = version


@pytest.mark.parametrize("name", LEARNERS)
def test_a_worker_that_is_killed_changes_nothing(two, packed, expected, name):
    victims = sorted(two.run(os.getpid).values())
    killed = []

    def kill(iteration, w, row):
        if iteration == 1 and not killed:
            killed.append(victims[0])
            os.kill(victims[0], signal.SIGKILL)

    crf = grid(learner=LEARNERS[name]).fit(packed, cluster=two, callbacks=[kill])
    assert killed and crf.weights_.tobytes() == expected[name]
    two.wait_for_workers(2, timeout=120)


def test_a_cluster_without_workers_does_not_hang(packed, monkeypatch):
    from backfield.training.execution import cluster as module

    options = {"n_workers": 1, "processes": False, "dashboard_address": None}
    with module.when_started(lambda: distributed.LocalCluster(**options)) as cluster:

        def leave(iteration, w, row):
            for name in ("REFRESH", "PATIENCE", "TIMEOUT"):
                monkeypatch.setattr(module, name, 0.5)
            cluster.scale(0)
            cluster.sync(cluster._correct_state)

        with pytest.raises(bf.ClusterError, match="no workers"):
            grid(learner=LEARNERS["lbfgs"], start="zero").fit(packed, cluster=cluster, callbacks=[leave])


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://127.0.0.1:1", "no Dask scheduler answers at tcp://127.0.0.1:1 within 1 s"),
        ("local:none", "local:N takes a number"),
        ("here", "cluster must be local:N, tcp"),
        ("tls://127.0.0.1:1", "needs Dask's TLS settings"),
    ],
)
def test_bad_addresses(packed, tmp_path, capsys, monkeypatch, address, words):
    monkeypatch.setattr("backfield.training.execution.cluster.TIMEOUT", 1.0)
    code = run(["fit", str(packed.folder), "--quiet", "-o", str(tmp_path / "m.bf"), "--cluster", address])
    err = capsys.readouterr().err
    assert code == 2 and err.count("\n") == 1 and words in err


@pytest.mark.parametrize("local", [False, True])
def test_a_thread_of_dask_that_starts_late_is_tried_again(one, monkeypatch, local):
    attempts = []
    start = distributed.utils.LoopRunner.start

    def late(self):
        attempts.append(self)
        assert len(attempts) > 2
        start(self)

    monkeypatch.setattr(distributed.utils.LoopRunner, "start", late)
    opened = open_cluster("local:1" if local else one.scheduler.address)
    assert len(attempts) >= 3 and (opened.client.scheduler.address != one.scheduler.address) == local
    opened.close()


def test_a_lost_scheduler_leaves_a_checkpoint(packed, expected, tmp_path, monkeypatch):
    """Over TLS, with certificates of our own, so that this path is tried, too."""
    security = _certificates(tmp_path)
    kind = "tls" if security else "tcp"
    files = {"ca-file": security and security[0], "cert": security and security[0], "key": security and security[1]}
    tls = [f"--tls-{key}={value}" for key, value in files.items()] if security else []
    common = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    where = ["--scheduler-file", str(tmp_path / "scheduler.json"), "--no-dashboard", *tls]  # the scheduler chooses its port
    scheduler = ["distributed.cli.dask_scheduler", "--host", f"{kind}://127.0.0.1", "--port", "0"]
    worker = ["distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1"]
    common["env"] = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [subprocess.Popen([sys.executable, "-m", *each, *where], **common) for each in (scheduler, worker)]
    config = {f"distributed.comm.tls.{key}": str(value) for key, value in files.items() if key == "ca-file"}
    config |= {"distributed.comm.tls.client.cert": files["cert"], "distributed.comm.tls.client.key": files["key"]}
    import dask

    def lose(iteration, w, row):
        if iteration == 2:
            processes[0].kill()

    crf = grid(learner=LEARNERS["lbfgs"])
    try:
        with dask.config.set(config if security else {}):
            address = _address(tmp_path / "scheduler.json")
            with pytest.raises(bf.ClusterError, match=f"the scheduler at {address} is lost"):
                crf.fit(packed, cluster=address, checkpoint=tmp_path / "c", callbacks=[lose])
    finally:
        for process in processes:
            process.kill()
            process.wait()
    crf.fit(packed, checkpoint=tmp_path / "c", resume=True)
    assert crf.weights_.tobytes() == expected["lbfgs"]


def _certificates(folder):
    if shutil.which("openssl") is None:
        return None
    made, key = folder / "cert.pem", folder / "key.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    request += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(made)]
    done = subprocess.run(request, capture_output=True)
    return (str(made), str(key)) if done.returncode == 0 else None


def _address(file, seconds=120):
    """Return what a scheduler has written about itself, as soon as it has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads(file.read_text())["address"]
        time.sleep(0.1)
    raise AssertionError("the scheduler does not start")
