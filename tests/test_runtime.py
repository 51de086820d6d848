"""One seam for parallel work, one context for what belongs to the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numba
import numpy as np
import pytest
from joblib import parallel_config
from numba import prange

from patchbag.runtime import check_random_state, current_runtime, parallel_map, parallel_njit, runtime_context


@parallel_njit(cache=False)
def count_threads_used():  # pragma: no cover - compiled
    seen = np.zeros(64)
    for i in prange(64):
        seen[i] = numba.get_num_threads()
    return seen.max()


def where(job):
    return job, os.getpid()


def test_results_come_in_the_order_of_the_jobs_on_any_number_of_workers():
    for workers in (None, 1, 2):
        with runtime_context(n_jobs=workers):
            assert [job for job, _ in parallel_map(where, range(20))] == list(range(20))


def test_who_leaves_early_waits_for_the_jobs_that_run_and_no_more_begin():
    running, begun = set(), []

    def job(i):
        begun.append(i)
        running.add(i)
        time.sleep(0.05 * (i > 0))
        running.discard(i)

    results = parallel_map(job, range(40), n_jobs=3)
    next(results)
    results.close()
    assert not running
    seen = list(begun)
    time.sleep(0.1)
    assert begun == seen and len(seen) < 40


def test_a_configured_backend_is_used_without_a_line_of_ours():
    with parallel_config("loky", n_jobs=2):
        processes = {process for _, process in parallel_map(where, range(8))}
    assert os.getpid() not in processes
    with parallel_config("loky", n_jobs=2):  # what writes into the caller's arrays stays there
        assert {process for _, process in parallel_map(where, range(8), near=True)} == {os.getpid()}


def test_jobs_for_other_processes_are_packed_and_still_one_result_each():
    with parallel_config("loky", n_jobs=2):
        for n in (1, 2, 7, 64, 200):
            assert [job for job, _ in parallel_map(where, range(n))] == list(range(n))


def test_one_worker_means_one_thread_in_libraries_that_come_later_too():
    code = """
from patchbag.runtime import runtime_context
with runtime_context(n_jobs=1):
    import numpy, scipy.linalg, sklearn.utils
    from threadpoolctl import threadpool_info
    print({pool["num_threads"] for pool in threadpool_info()})
"""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "{1}"


def test_one_worker_means_one_thread_in_compiled_loops_too():
    with runtime_context(n_jobs=1):
        assert count_threads_used() == 1
    with runtime_context(n_jobs=2):
        assert count_threads_used() == min(2, numba.config.NUMBA_NUM_THREADS)


def test_an_estimator_without_a_seed_takes_that_of_the_context():
    with runtime_context(seed=5):
        drawn = check_random_state(None).randint(1000, size=4)
        with runtime_context(seed=6):
            assert check_random_state(None).randint(1000, size=4).tolist() != drawn.tolist()
        assert check_random_state(None).randint(1000, size=4).tolist() == drawn.tolist()
        assert check_random_state(7).randint(1000, size=4).tolist() != drawn.tolist()
    assert current_runtime().seed is None


def seed_of(job):
    return current_runtime().seed


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_workers_have_the_context_of_their_caller(backend):
    with parallel_config(backend, n_jobs=2), runtime_context(seed=5):
        assert set(parallel_map(seed_of, range(64))) == {5}


def test_compiled_code_has_a_place_where_neither_the_package_nor_the_home_can_be_written(monkeypatch, tmp_path):
    import platformdirs

    import patchbag

    (tmp_path / "file").touch()
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path / "file" / "numba"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    patchbag._place_for_compiled_code()
    place = os.environ.pop("NUMBA_CACHE_DIR")
    assert os.path.dirname(place) == str(tmp_path) and os.stat(place).st_mode & 0o077 == 0
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path / "numba"))
    patchbag._place_for_compiled_code()
    assert "NUMBA_CACHE_DIR" not in os.environ
