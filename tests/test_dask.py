# SPDX-License-Identifier: BSD-3-Clause
"""Features, EM and statistics on a Dask cluster of two processes: the same bits as here, without a line of ours."""

from __future__ import annotations

import os

import numpy as np
import pytest
from joblib import parallel_config

from patchbag import BagPCA, DenseSIFT, UniversalMixture, UniversalStatistics
from patchbag.mixture import em, statistics
from patchbag.runtime import parallel_map

distributed = pytest.importorskip("distributed")

# the cluster's own business: a free port, event loops and sockets that its threads close late
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        yield


def process_of(job):
    return os.getpid()


def describe(images):
    sift = DenseSIFT(bin_sizes=(4, 8), step=6)
    bags = sift.fit_transform(images)
    model = UniversalStatistics(UniversalMixture(4, random_state=0))
    return bags, model.fit_transform(BagPCA(16, random_state=0).fit_transform(bags))


def test_jobs_run_in_the_processes_of_the_cluster(cluster):
    with parallel_config("dask"):
        processes = set(parallel_map(process_of, range(16)))
    assert os.getpid() not in processes and len(processes) == 2


def test_features_em_and_statistics_are_the_same_bits(cluster, textures, monkeypatch):
    for module in (em, statistics):  # so that a few small images are several jobs
        monkeypatch.setattr(module, "JOB_ROWS", 256)
    images = textures[0][:12]
    bags, sums = describe(images)
    with parallel_config("dask"):
        there_bags, there_sums = describe(images)
    np.testing.assert_array_equal(there_bags.values, bags.values)
    for name in ("s0", "s1", "s2"):
        np.testing.assert_array_equal(getattr(there_sums, name), getattr(sums, name))
