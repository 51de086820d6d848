"""Encodings that go to a file chunk by chunk are those that are made at once."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from patchbag import (
    Bags,
    DenseSIFT,
    FisherVector,
    Normalizer,
    StochasticLinearClassifier,
    UniversalMixture,
    UniversalStatistics,
    runtime_context,
)
from patchbag.encodings.stream import encode_images, stream_vectors
from patchbag.images.loading import ImageError


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


@pytest.fixture(scope="module")
def fisher(textures):
    """SIFT, Fisher vectors fitted on some images, and the images."""
    images, sift = textures[0][:21], DenseSIFT(bin_sizes=(4, 8), step=6)
    steps = UniversalStatistics(UniversalMixture(3, random_state=0)), FisherVector(), Normalizer(["power", "l2"])
    return sift, make_pipeline(*steps).fit(sift.fit_transform(images[:9])), images


def test_images_are_encoded_where_they_are_described_as_if_one_by_one(fisher, tmp_path):
    sift, encoder, images = fisher
    seen = []
    found = encode_images(
        sift, encoder, images, tmp_path / "v.npy", chunk=4, progress=lambda done, n: seen.append((done, n))
    )
    expected = stream_vectors(encoder, sift.transform(images), tmp_path / "w.npy")
    # products of chunks of other sizes round otherwise: a last digit of float16
    np.testing.assert_allclose(found.vectors, expected, rtol=2e-3, atol=1e-6)
    assert found.kept.tolist() == list(range(21)) and not found.failures
    assert seen == [(done, 21) for done in range(1, 22)]
    with runtime_context(n_jobs=3):
        again = encode_images(sift, encoder, images, tmp_path / "x.npy", chunk=4).vectors
    np.testing.assert_array_equal(again, found.vectors)


def test_images_that_fail_are_named_by_their_place_or_left_out(fisher, tmp_path):
    sift, encoder, images = fisher
    broken = [b"no image", b"nor this", *images[:4], b"", *images[4:6]]
    found = encode_images(sift, encoder, broken, tmp_path / "v.npy", on_error="skip", chunk=2)
    assert found.kept.tolist() == [2, 3, 4, 5, 7, 8] and [one.index for one in found.failures] == [0, 1, 6]
    whole = encode_images(sift, encoder, images[:6], tmp_path / "w.npy").vectors
    # other chunks: BLAS may round products of other heights otherwise, and so may float16
    np.testing.assert_allclose(found.vectors, whole, atol=1e-4)
    with pytest.raises(ImageError, match="image 6 of 7"):
        encode_images(sift, encoder, broken[2:6] + images[:2] + [b""], tmp_path / "x.npy", chunk=3)
    with pytest.raises(ValueError, match="nothing to encode"):
        encode_images(sift, encoder, broken[:2], tmp_path / "x.npy", on_error="skip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.npy", "w.npy"]
