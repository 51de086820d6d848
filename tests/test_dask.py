# SPDX-License-Identifier: BSD-3-Clause
"""Features, EM and statistics on a Dask cluster of two processes: the same bits as here, without a line of ours."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from typer.testing import CliRunner

from patchbag import (
    BagPCA,
    DenseSIFT,
    FisherVector,
    StochasticLinearClassifier,
    UniversalMixture,
    UniversalStatistics,
)
from patchbag.classifiers import stochastic
from patchbag.cli import app
from patchbag.cluster import cluster_context
from patchbag.encodings.stored import create_array, open_array
from patchbag.encodings.stream import encode_images
from patchbag.mixture import em, statistics
from patchbag.runtime import parallel_map

distributed = pytest.importorskip("distributed")

# the cluster's own business: a free port, event loops and sockets that its threads close late
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


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


def where(images):
    return np.full((len(images), 1), os.getpid(), np.float64)


class Whereabouts(FunctionTransformer):
    """An encoder that tells on which worker it ran."""

    def __init__(self):
        super().__init__(where)


def test_images_are_encoded_by_the_worker_that_describes_them(cluster, textures, tmp_path):
    images, sift = textures[0][:12], DenseSIFT(bin_sizes=(4, 8), step=6)
    steps = UniversalStatistics(UniversalMixture(4, random_state=0)), FisherVector()
    encoder = make_pipeline(*steps).fit(sift.fit_transform(images[:6]))
    here = encode_images(sift, encoder, images, tmp_path / "here.npy", chunk=3)
    with parallel_config("dask"):
        there = encode_images(sift, encoder, images, tmp_path / "there.npy", chunk=3)
        workers = encode_images(sift, Whereabouts(), images, tmp_path / "who.npy", chunk=3, dtype=np.float64).vectors
    np.testing.assert_array_equal(there.vectors, here.vectors)
    assert os.getpid() not in workers and len(np.unique(workers)) == 2


class Fragile(DenseSIFT):
    """Descriptors whose first worker is killed while it makes them."""

    def describe(self, image):
        die_once(self.caller, self.folder / "described")
        return super().describe(image)


class FragileStatistics(UniversalStatistics):
    def transform(self, bags):
        die_once(self.caller, self.folder / "encoded")
        return super().transform(bags)


def die_once(caller, marker):
    if os.getpid() != caller and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_costs_time_and_nothing_else(cluster, textures, tmp_path):
    """Killed once while it describes images, and once while it makes statistics of them: the same bits."""
    images, sift = textures[0][:12], Fragile(bin_sizes=(4, 8), step=6)
    statistics = FragileStatistics(UniversalMixture(4, random_state=0))
    for fragile in (sift, statistics):
        fragile.caller, fragile.folder = os.getpid(), tmp_path
    encoder = make_pipeline(statistics, FisherVector()).fit(sift.fit_transform(images[:6]))
    here = encode_images(sift, encoder, images, tmp_path / "here.npy", chunk=3).vectors
    with parallel_config("dask"):
        there = encode_images(sift, encoder, images, tmp_path / "there.npy", chunk=3).vectors
    assert {path.name for path in tmp_path.iterdir()} >= {"described", "encoded"}
    np.testing.assert_array_equal(there, here)


def test_a_worker_that_is_killed_during_em_costs_nothing(cluster, textures, monkeypatch):
    """EM stays with the caller, whose jobs here kill a worker on the way."""
    monkeypatch.setattr(em, "JOB_ROWS", 256)
    values = DenseSIFT(bin_sizes=(4, 8), step=6).fit_transform(textures[0][:12]).values
    expected = UniversalMixture(4, random_state=0).fit(values)
    workers, literal, jobs = list(cluster.run(os.getpid).values()), em._sums, []

    def sums(job, parameters):
        jobs.append(os.getpid())
        if len(jobs) == 20:
            os.kill(workers[0], signal.SIGKILL)
        return literal(job, parameters)

    monkeypatch.setattr(em, "_sums", sums)
    with parallel_config("dask"):
        found = UniversalMixture(4, random_state=0).fit(values)
    assert len(jobs) > 20 and set(jobs) == {os.getpid()}
    np.testing.assert_array_equal(found.means_, expected.means_)
    cluster.wait_for_workers(2)


def test_train_on_a_cluster_writes_the_same_file(picture_folder, tmp_path, monkeypatch):
    models = []
    for name, options in (("here", ()), ("there", ("--cluster", "local"))):
        monkeypatch.setenv("PATCHBAG_CACHE", str(tmp_path / name))
        small = [f"--set=statistics.{part}.n_components={n}" for part, n in (("mixture", 4), ("projection", 16))]
        models.append(tmp_path / f"{name}.patchbag")
        given = ["train", picture_folder, "--recipe", "fisher", *small, "-j", 2, "-o", models[-1], *options]
        result = CliRunner().invoke(app, [str(a) for a in given])
        assert result.exit_code == 0, result.output
    assert models[0].read_bytes() == models[1].read_bytes()


def test_an_address_where_nobody_answers_is_one_clear_line(monkeypatch):
    monkeypatch.setattr("patchbag.cluster.TIMEOUT", 1)
    with (
        pytest.raises(ValueError, match="no Dask scheduler answers at tcp"),
        cluster_context("tcp://127.0.0.1:9"),
    ):
        pass


def test_workers_write_vectors_to_a_shared_folder_and_learn_from_it(cluster, textures, tmp_path, monkeypatch):
    """The same bits as one process; the vectors never come back to the caller."""
    pytest.importorskip("zarr")
    monkeypatch.setattr(stochastic, "PART", 4)
    images, sift = textures[0][:12], DenseSIFT(bin_sizes=(4, 8), step=6)
    steps = UniversalStatistics(UniversalMixture(4, random_state=0)), FisherVector()
    encoder = make_pipeline(*steps).fit(sift.fit_transform(images[:6]))
    found = []
    for place in ("threading", "dask"):
        address = str(tmp_path / f"{place}.zarr")
        with parallel_config(place):
            vectors, kept, _ = encode_images(sift, encoder, images, address, chunk=3)
            model = StochasticLinearClassifier(1e-3, random_state=0).fit(vectors, np.asarray(kept) % 2)
        found.append((vectors[:], model.coef_))
    np.testing.assert_array_equal(found[1][0], found[0][0])
    np.testing.assert_array_equal(found[1][1], found[0][1])


def test_an_address_that_workers_do_not_share_is_named(cluster):
    pytest.importorskip("zarr")
    create_array("memory://mine/v.zarr", 4, 2, 2, np.float16)
    with pytest.raises(ValueError, match="this worker finds no array at memory://"):
        cluster.submit(open_array, "memory://mine/v.zarr").result()
