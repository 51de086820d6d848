"""Encodings that go to a file chunk by chunk are those that are made at once."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from patchbag import Bags, FisherVector, Normalizer, StochasticLinearClassifier, UniversalMixture, UniversalStatistics
from patchbag.encodings.stream import stream_vectors


def test_a_streamed_file_holds_what_transform_gives_and_teaches(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    bags = Bags.from_list([rng.normal(i % 2, 1, (30, 4)) for i in range(60)])
    bags.save(tmp_path / "bags")
    mapped = Bags.load(tmp_path / "bags")
    statistics = UniversalStatistics(UniversalMixture(1, random_state=0))
    encoder = make_pipeline(statistics, FisherVector(), Normalizer(["power", "l2"])).fit(mapped)
    vectors = stream_vectors(encoder, mapped, tmp_path / "vectors.npy", chunk=17)
    assert isinstance(vectors, np.memmap) and vectors.dtype == np.float16
    np.testing.assert_allclose(vectors, encoder.transform(bags), atol=1e-3)
    assert StochasticLinearClassifier(1e-2, epochs=30, random_state=0).fit(vectors, y).score(vectors, y) == 1
    assert sorted(p.name for p in tmp_path.iterdir() if "vectors" in p.name) == ["vectors.npy"]


def test_vectors_too_large_for_the_type_are_an_error_and_leave_no_file(tmp_path):
    class Large:
        def transform(self, X):
            return 1e6 * np.ones((len(X), 3))

    with pytest.raises(ValueError, match="float16 cannot hold"):
        stream_vectors(Large(), np.zeros((4, 1)), tmp_path / "x.npy")
    assert not list(tmp_path.iterdir())
