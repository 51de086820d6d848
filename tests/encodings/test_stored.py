"""Vectors that workers write to an address, and learn from there: the same as those that come back."""

from __future__ import annotations

import builtins
import os

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.pipeline import make_pipeline

from patchbag import (
    DenseSIFT,
    FisherVector,
    StochasticLinearClassifier,
    UniversalMixture,
    UniversalStatistics,
    runtime_context,
)
from patchbag.classifiers import stochastic
from patchbag.classifiers.stripes import sample_rows
from patchbag.encodings.stored import StoredVectors, create_array, open_array, scratch
from patchbag.encodings.stream import encode_images


@pytest.fixture
def zarr():
    pytest.importorskip("fsspec")
    return pytest.importorskip("zarr")


@pytest.fixture(params=["folder", "memory"])
def address(request, tmp_path, zarr):
    with scratch(str(tmp_path) if request.param == "folder" else "memory://patchbag/tests") as found:
        yield found


def stored(X, address, chunk=64, rows=None):
    create_array(address, len(X), X.shape[1], chunk, X.dtype)
    open_array(address, "r+")[:] = X
    return StoredVectors(address, np.arange(len(X)) if rows is None else rows)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 3000)
    X = np.eye(12)[y] + 0.5 * rng.normal(size=(3000, 12))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float16), y


def test_rows_are_those_that_were_written_and_what_is_missing_is_named(address, samples):
    X, _ = samples
    rows = np.setdiff1d(np.arange(3000), [0, 5, 130])
    vectors = stored(X, address, rows=rows)
    assert vectors.shape == (2997, 12) and vectors.dtype == np.float16
    np.testing.assert_array_equal(vectors[:], X[rows])
    np.testing.assert_array_equal(vectors[np.array([3, 4, 2000])], X[rows[[3, 4, 2000]]])
    assert list(vectors.bounds()[:4]) == [0, 62, 126, 189] and vectors.bounds()[-1] == 2997
    open_array(address, "r+")[64:128] = np.nan
    with pytest.raises(ValueError, match="64 vectors are missing, the first is that of row 64"):
        vectors[:]


def test_images_are_written_where_they_are_encoded(address, textures, tmp_path):
    images, sift = textures[0][:13], DenseSIFT(bin_sizes=(4, 8), step=6)
    steps = UniversalStatistics(UniversalMixture(4, random_state=0)), FisherVector()
    encoder = make_pipeline(*steps).fit(sift.fit_transform(images[:6]))
    given = [*images[:4], b"broken", *images[4:]]
    here = encode_images(sift, encoder, given, tmp_path / "here.npy", chunk=4, on_error="skip")
    with runtime_context(n_jobs=2):
        there = encode_images(sift, encoder, given, address, chunk=4, on_error="skip")
    assert [one.index for one in there.failures] == [4] and list(there.kept) != sorted(there.kept)
    back = np.argsort(there.kept)
    np.testing.assert_array_equal(there.kept[back], here.kept)
    # other images share a job, and its matrix products: half precision rounds a few numbers the other way
    np.testing.assert_allclose(there.vectors[:][back], here.vectors, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="image 4 of 14"):
        encode_images(sift, encoder, given, address.replace(".zarr", "-2.zarr"), chunk=4)


def test_parts_are_averaged_as_they_would_be_by_hand(address, samples, monkeypatch):
    """Two parts, one epoch: the mean of two models of half of the rows each, weighed by their rows."""
    X, y = samples
    monkeypatch.setattr(stochastic, "PART", 1500)
    whole = StochasticLinearClassifier(1e-3, epochs=1, random_state=0).fit(stored(X, address), y)
    random = np.random.RandomState(0)
    order, coef, rows = random.permutation(47), 0, []
    for chosen in np.array_split(order, 2):
        chunks = [np.sort(chosen[i : i + 32]) for i in range(0, len(chosen), 32)]
        part = StochasticLinearClassifier(1e-3)
        part._begin(np.unique(y), 12)
        own = np.random.RandomState(random.randint(2**31 - 1))
        for stripes in chunks:
            these = np.concatenate([np.arange(64 * i, min(64 * i + 64, 3000)) for i in stripes])
            part._learn(X[these], y[these], own)
        rows.append(part.t_)
        coef = coef + part.t_ * part._end().coef_
    np.testing.assert_allclose(whole.coef_, coef / sum(rows), rtol=1e-5, atol=1e-6)
    assert whole.t_ == sum(rows) == 3000


def test_weights_are_the_same_bits_with_any_workers_and_as_good_as_one_processs(tmp_path, zarr, samples, monkeypatch):
    X, y = samples
    monkeypatch.setattr(stochastic, "PART", 500)
    made = []
    with scratch(str(tmp_path)) as address:
        vectors = stored(X[:2500], address)
        for settings in ({"n_jobs": 1}, {"n_jobs": 2}, {"n_jobs": 2, "backend": "loky"}):
            with parallel_config(**settings):
                made.append(StochasticLinearClassifier(probability=True, random_state=0).fit(vectors, y[:2500]))
    assert not list(tmp_path.iterdir())
    for model in made[1:]:
        np.testing.assert_array_equal(model.coef_, made[0].coef_)
        np.testing.assert_array_equal(model.predict_proba(X), made[0].predict_proba(X))
    one = StochasticLinearClassifier(random_state=0).fit(X[:2500], y[:2500])
    assert made[0].score(X[2500:], y[2500:]) > one.score(X[2500:], y[2500:]) - 0.02
    assert made[0].left_out_.own.shape == (500,)


def test_of_many_stored_vectors_whole_stripes_are_drawn(address):
    vectors = stored(np.zeros((7000, 2), np.float16), address)
    drawn = sample_rows(vectors, 300, np.random.RandomState(0))
    assert len(drawn) == 320 and len(np.unique(drawn // 64)) == 5 and (np.diff(drawn) > 0).all()
    assert len(sample_rows(np.zeros((7000, 2)), 300, np.random.RandomState(0))) == 300


def test_addresses_of_no_use_are_named_at_once(tmp_path, zarr):
    for address, said in (
        (tmp_path / "nowhere", "is no folder"),
        ("nothing://x", "cannot use the address nothing://x"),
        ("/proc", "cannot write to /proc"),
    ):
        with pytest.raises(ValueError, match=said), scratch(str(address)):
            pass
    with pytest.raises(ValueError, match="this worker finds no array"):
        open_array(str(tmp_path / "other.zarr"))


def test_without_zarr_the_extra_is_named(tmp_path, monkeypatch):
    found = builtins.__import__

    def without(name, *rest):
        if name == "zarr":
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"pip install 'patchbag\[dask\]'"), scratch(os.fspath(tmp_path)):
        pass
