# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from collections import deque

import cv2
import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from collection import pictures
from collection.pictures import assert_same
from patchbag.features import extraction
from patchbag.features.dense_sift import DenseSIFT
from patchbag.features.extraction import Failure, FeatureExtractor
from patchbag.images.loading import ImageError, load_image


class Rows(pictures.Rows):
    """The same by processes, as features are unless they say otherwise."""

    calls = 0
    parallel = FeatureExtractor.parallel


@pytest.fixture(autouse=True)
def reset():
    Rows.calls = 0


@pytest.fixture
def folder(tmp_path):
    """Seven files, of which 2, 3 and 6 are broken."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(7):
        path = tmp_path / f"{i}.png"
        Image.fromarray(rng.integers(20, 256, (20 + i, 24), dtype=np.uint8)).save(path)
        paths.append(path)
    paths[2].write_text("not a picture")
    paths[3] = tmp_path / "missing.png"
    paths[6].write_bytes(paths[6].read_bytes()[:200])
    return paths


def test_broken_images_are_listed_and_never_shift_the_others(folder):
    labels = np.arange(7) * 10
    bags, kept, failures = Rows().extract(folder, on_error="skip")
    assert kept.tolist() == [0, 1, 4, 5]
    assert bags.sizes.tolist() == [20, 21, 24, 25]
    assert labels[kept].tolist() == [0, 10, 40, 50]
    assert [(f.index, f.name) for f in failures] == [(i, str(folder[i])) for i in (2, 3, 6)]
    assert "not an image" in failures[0].message and "no such file" in failures[1].message
    for bag, index in zip(bags, kept):
        np.testing.assert_array_equal(bag, np.asarray(Image.open(folder[index]))[:, :4])


def test_raising_names_the_first_broken_image(folder):
    with pytest.raises(ImageError, match=r"image 2 of 7, .*2\.png: is not an image"):
        Rows().transform(folder)


def test_an_error_or_an_empty_bag_of_a_feature_is_a_failure_of_that_image():
    images = [np.full((8, 8), v, np.uint8) for v in (1, 13, 14, 2)]
    bags, kept, failures = Rows().extract(images, on_error="skip")
    assert kept.tolist() == [0, 3]
    assert [f.message for f in failures] == ["brings bad luck", "has no descriptors left"]
    assert bags.values[:, 0].tolist() == [1] * 8 + [2] * 8


def test_all_images_failing_gives_no_bags_and_all_failures():
    bags, kept, failures = Rows().extract([b"x", b"y"], on_error="skip")
    assert (len(bags), len(kept), len(failures)) == (0, 0, 2)
    assert len(Rows().transform([])) == 0


def test_any_kind_of_source_gives_the_same_bag(folder):
    array = np.asarray(Image.open(folder[0]))
    sources = [folder[0], str(folder[0]), folder[0].read_bytes(), array, Image.open(folder[0])]
    for bag in Rows().transform(sources):
        np.testing.assert_array_equal(bag, array[:, :4])


@pytest.mark.parametrize("parallel", ["threads", "processes"])
def test_several_jobs_give_the_same_bags_and_the_same_failures(monkeypatch, parallel):
    monkeypatch.setattr(DenseSIFT, "parallel", parallel)
    monkeypatch.setattr(extraction, "FEW", 5)
    monkeypatch.setattr(extraction, "BLOCK", 4)
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (30 + i % 5, 40), dtype=np.uint8) for i in range(20)]
    images[9] = np.zeros((5, 5), np.uint8)
    images[17] = b"broken"
    here = DenseSIFT(8, (4,), dtype="uint8").extract(images, on_error="skip")
    seen = []
    there = DenseSIFT(8, (4,), dtype="uint8", n_jobs=2).extract(
        images, on_error="skip", progress=lambda done, total: seen.append((done, total))
    )
    assert_same(here.bags, there.bags)
    np.testing.assert_array_equal(here.kept, there.kept)
    assert here.failures == there.failures
    assert [f.index for f in there.failures] == [9, 17]
    assert seen == [(i + 1, 20) for i in range(20)]
    with pytest.raises(ImageError, match="image 9 of 20"):
        DenseSIFT(8, (4,), n_jobs=2).transform(images)


def test_few_images_start_no_processes(monkeypatch):
    used = []
    parallel_map = extraction.parallel_map
    monkeypatch.setattr(
        extraction, "parallel_map", lambda f, jobs, n, **how: used.append(n) or parallel_map(f, jobs, 1)
    )
    images = [np.full((8, 8), 20, np.uint8)] * extraction.FEW
    assert len(Rows(n_jobs=2).transform(images[1:])) == extraction.FEW - 1 and set(used) == {1}
    assert len(Rows(n_jobs=2).transform(images)) == extraction.FEW and used[-1] == 2


def test_opencv_has_one_thread_while_images_are_described_and_its_own_number_afterwards(monkeypatch):
    seen = []
    describe = Rows.describe
    monkeypatch.setattr(Rows, "parallel", "threads")
    monkeypatch.setattr(Rows, "describe", lambda self, x: seen.append(cv2.getNumThreads()) or describe(self, x))
    before = cv2.getNumThreads()
    cv2.setNumThreads(3)
    try:
        Rows(n_jobs=3).transform([np.full((8, 8), 20, np.uint8)] * 30)
        assert set(seen) == {1} and len(seen) == 30 and cv2.getNumThreads() == 3
    finally:
        cv2.setNumThreads(before)


def test_streaming_yields_each_image_or_its_failure(folder):
    results = list(Rows().stream(folder))
    assert [isinstance(r, Failure) for r in results] == [False, False, True, True, False, False, True]
    np.testing.assert_array_equal(results[0][0], Rows().transform(folder[:1]).values)


@pytest.mark.parametrize("one", ["photo.jpg", b"bytes", bytearray(b"bytes"), np.zeros((8, 8)), Image.new("L", (8, 8))])
def test_a_single_image_is_not_taken_for_a_sequence(one):
    with pytest.raises(ValueError, match=r"sequence of images.*pass \[image\]"):
        Rows().transform(one)


def test_on_error_must_be_one_of_two_words():
    with pytest.raises(ValueError, match="on_error"):
        Rows().extract([], on_error="ignore")


def test_arrays_of_paths_and_stacks_of_images_are_sequences(folder):
    assert len(Rows().transform(np.array([str(folder[0]), str(folder[1])]))) == 2
    assert len(Rows().transform(np.ones((3, 8, 8), np.uint8))) == 3


class Column:
    """A stand-in for a column of a data frame that was filtered: it is indexed by label, and iterated in order."""

    def __init__(self, items, labels):
        self.items, self.labels = items, labels

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)

    def __getitem__(self, label):
        return self.items[self.labels.index(label)]


@pytest.mark.parametrize("labels", [[2, 0, 1], [7, 8, 9]])
def test_a_column_with_labels_is_taken_in_its_order(labels):
    images = [np.full((8, 8), v, np.uint8) for v in (20, 30, 40)]
    bags = Rows().transform(Column(images, labels))
    assert [bag[0, 0] for bag in bags] == [20, 30, 40]
    assert [len(Rows().transform(kind(images))) for kind in (list, tuple, deque, iter)] == [3] * 4


def test_sixteen_bit_pillow_images_are_described_like_their_files(tmp_path):
    levels = (np.arange(64, dtype=np.uint16) * 1000 + 300).reshape(8, 8)
    path = tmp_path / "deep.png"
    Image.fromarray(levels).save(path)
    from_path, from_object = Rows().transform([path, Image.open(path)])
    np.testing.assert_allclose(from_path, levels[:, :4] / 257, rtol=1e-6)
    np.testing.assert_array_equal(from_object, from_path)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_pillow_image_that_fails_keeps_its_file_name(tmp_path, monkeypatch, jobs):
    monkeypatch.setattr(Rows, "parallel", "threads")
    Image.fromarray(np.full((8, 8), 13, np.uint8)).save(tmp_path / "unlucky.png")
    images = [Image.open(tmp_path / "unlucky.png"), np.full((8, 8), 20, np.uint8)]
    failure = Rows(n_jobs=jobs).extract(images, on_error="skip").failures[0]
    assert failure.name == str(tmp_path / "unlucky.png")
    assert failure.message == "brings bad luck"


def test_an_extractor_opens_a_pipeline():
    rng = np.random.default_rng(0)
    images = [rng.integers(20, 90 + 150 * (i % 2), (12, 8), dtype=np.uint8) for i in range(20)]
    labels = np.arange(20) % 2
    means = FunctionTransformer(lambda bags: np.stack([bag.mean(axis=0) for bag in bags]))
    model = make_pipeline(Rows(factor=0.01), means, LogisticRegression(C=100))
    assert model.fit(images, labels).score(images, labels) == 1.0
    assert model.set_params(rows__factor=0.02)[0].factor == 0.02
    assert_same(Rows().fit_transform(images), Rows().transform(images))


def test_small_pictures_are_enlarged_where_they_are_to_be():
    """By splines, on the scale 0..255, and no further than the longest side may be."""
    small = np.random.default_rng(0).integers(0, 256, (8, 12), dtype=np.uint8)
    sift = DenseSIFT(step=8, bin_sizes=(4,))
    with pytest.raises(ImageError, match="smaller than the smallest patch"):
        sift.transform([small])
    by_hand = cv2.resize(small, (96, 64), interpolation=cv2.INTER_CUBIC)
    found = DenseSIFT(step=8, bin_sizes=(4,), min_side=64).transform([small])
    np.testing.assert_array_equal(found.values, sift.transform([by_hand]).values)
    large = np.zeros((80, 64), np.uint8)
    assert extraction.enlarged(load_image(large), 64).array is not None
    assert extraction.enlarged(load_image(large), 64).scale == 1.0
    assert extraction.enlarged(load_image(np.zeros((8, 200), np.uint8)), 64, 512).array.shape == (20, 512)
    edge = np.tile(np.repeat([0.0, 1.0], 8), (16, 1))
    levels = extraction.enlarged(load_image(edge), 64).array
    assert levels.dtype == np.float32 and levels.min() == 0 and levels.max() == 255
