"""Fits in several threads at once, beside a cluster: the same bytes, and a process that is as it was."""

import logging
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import backfield as bf
from backfield.training.execution import active, using


def data():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(9, 11, 40)).astype(np.float32) for _ in range(6)]
    return X, [(x[:, :, 0] > 0).astype(np.int64) for x in X]


def fit(learner="lbfgs(max_iter=5)", n_jobs=1):
    """The bytes of a fit without trials on held-out labels, which are dozens of fits more."""
    model = bf.GridCRF(inference="tree_reweighted(n_iter=3)", learner=learner, n_jobs=n_jobs)
    return model.fit(*data()).weights_.tobytes()


def blas_threads():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


LEARNERS = ["lbfgs(max_iter=5)", "sgd(epochs=2)"]


def test_four_threads_at_once_give_the_same_bytes_and_leave_blas_as_it_was():
    fit()  # loads all libraries that have threads
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        alone = {learner: fit(learner) for learner in LEARNERS}
        with ThreadPoolExecutor(4) as pool:
            jobs = [(learner, pool.submit(fit, learner, n_jobs)) for learner in LEARNERS for n_jobs in (1, 2) * 2]
            assert all(job.result() == alone[learner] for learner, job in jobs)
        assert blas_threads() == before


def in_processes(kind):
    """Return the bytes of fits in two other processes."""
    if kind == "loky":
        joblib = pytest.importorskip("joblib")
        found = joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(fit)(learner) for learner in LEARNERS)
        joblib.externals.loky.get_reusable_executor().shutdown(wait=True)
        return found
    with multiprocessing.get_context(kind).Pool(2) as pool:
        return pool.map(fit, LEARNERS, chunksize=1)


@pytest.mark.parametrize("kind", ["fork", "spawn", "loky"])
def test_other_processes_give_the_same_bytes(kind):
    assert in_processes(kind) == [fit(learner) for learner in LEARNERS]


def test_threads_and_processes_beside_a_cluster_give_the_same_bytes():
    pytest.importorskip("distributed")
    expected = [fit(learner) for learner in LEARNERS]
    with using("local:1"), ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(fit, learner, n_jobs) for n_jobs in (1, 2) for learner in LEARNERS]
        assert in_processes("spawn") == expected
        assert [fit(learner) for learner in LEARNERS] == expected  # on the workers
        assert [job.result() for job in jobs] == expected * 2
    assert active() is None


def test_a_fit_without_a_cluster_never_uses_that_of_another_thread():
    pytest.importorskip("distributed")
    expected, found = fit(), []

    def beside():
        found.append(active())
        found.append(fit())

    with using("local:1") as cluster:
        assert active() is cluster
        threads = [threading.Thread(target=beside) for _ in range(3)]
        for thread in threads:
            thread.start()
        on_workers = fit()
        for thread in threads:
            thread.join(120)
        assert active() is cluster
    assert active() is None
    assert found.count(None) == 3 and found.count(expected) == 3 and on_workers == expected


def test_logger_levels_are_restored():
    pytest.importorskip("distributed")
    from backfield.cli._models import quiet_cluster

    def levels():
        names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
        handlers = [handler.level for handler in logging.getLogger("distributed").handlers]
        return {name: logging.getLogger(name).level for name in names}, handlers

    with using("local:1"):
        pass
    before = levels()
    with quiet_cluster("local:1"), using("local:1"):
        assert logging.getLogger("distributed.worker").level > logging.CRITICAL
    assert levels() == before
