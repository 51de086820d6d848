# SPDX-License-Identifier: BSD-3-Clause
"""Compressed vectors: the codes are those of the formula, and little is lost."""

from __future__ import annotations

import os
import shutil
import time

import numpy as np
import pytest
from PIL import Image

from patchbag import SearchIndex
from patchbag.search import encoder as encoder_module
from patchbag.search import folder_index
from patchbag.search.compressed import BYTES, CANDIDATES, STEP, CompressedVectors


def falling(n: int, width: int, seed: int = 0) -> np.ndarray:
    """Vectors of unit length with a falling spectrum, in a basis of their own."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(99).normal(size=(width, width)))[0]
    x = (rng.normal(size=(n, width)) * np.arange(1, width + 1) ** -0.5) @ turn
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def test_estimates_are_those_of_the_formula_number_by_number():
    x, query = falling(300, 21), falling(1, 21, 1)[0]
    codes = CompressedVectors.fit(x)
    y, q = x @ codes.rotation, query @ codes.rotation
    q = np.rint(q / np.abs(q).max() * 127) * np.abs(q).max() / 127
    for i in (0, 5, 255, 256, 299):
        r = np.sqrt((y[i] ** 2).mean())
        c = [min(max(np.floor(value / (r * STEP)) + 8, 0), 15) for value in y[i]]
        s = (y[i] @ y[i]) / sum((level - 7.5) * value for level, value in zip(c, y[i]))
        expected = s * sum((level - 7.5) * value for level, value in zip(c, q))
        assert codes.estimate(query)[i] == pytest.approx(expected, abs=1e-5)


def test_a_rotation_keeps_all_products_where_nothing_is_left_out():
    x = falling(50, 21)
    y = x @ CompressedVectors.fit(x).rotation
    assert y.shape[1] == 22 and y @ y.T == pytest.approx(x @ x.T, abs=1e-5)


def test_long_vectors_keep_their_leading_axes_and_few_bytes():
    x = falling(1500, 600)
    codes = CompressedVectors.fit(x)
    assert codes.codes.shape == (6, BYTES, 256)
    assert codes.nbytes == codes.codes.size + 4 * 1500 + 4 * 600 * 2 * BYTES
    axes = np.linalg.svd(x, full_matrices=False)[2][: 2 * BYTES]
    best, ours = (((x @ a) ** 2).sum() for a in (axes.T, codes.rotation))
    assert ours > 0.99 * best


def test_the_nearest_are_found_exactly_among_the_candidates():
    x, queries = falling(5000, 400), falling(20, 400, 1)
    codes = CompressedVectors.fit(x)
    found = 0
    for query in queries:
        rows, products = codes.search(query, x, 10)
        assert products == pytest.approx(x[rows] @ query, abs=1e-6) and (np.diff(products) <= 0).all()
        found += len(set(rows) & set(np.argsort(-(x @ query))[:10]))
    assert found >= 0.99 * 200
    rows, _ = codes.search(queries[0], x, len(x))
    assert sorted(rows) == list(range(len(x)))


def test_vectors_that_are_zero_and_collections_smaller_than_the_candidates_do_no_harm():
    x = np.vstack([falling(3, 8), np.zeros((1, 8), np.float32)])
    assert len(x) < CANDIDATES
    codes = CompressedVectors.fit(x)
    assert np.isfinite(codes.estimate(x[0])).all() and codes.estimate(x[0])[3] == 0
    assert codes.search(x[1], x, 2)[0][0] == 1 and len(codes.search(np.zeros(8), x, 9)[0]) == 4


def test_codes_of_known_vectors_are_taken_over():
    x = falling(700, 40)
    codes = CompressedVectors.fit(x)
    rows = np.array([600, 3, -1, 299, -1])
    again = codes.renewed(rows, x[[600, 3, 10, 299, 11]])
    expected = codes.renewed(np.full(5, -1), x[[600, 3, 10, 299, 11]])
    assert np.array_equal(again.codes, expected.codes)
    assert again.scales == pytest.approx(expected.scales, rel=1e-5)  # products of other shapes round differently
    assert len(again) == 5


@pytest.fixture
def photos(tmp_path, own_store, monkeypatch):
    monkeypatch.setattr(
        "patchbag.features.networks.preparation.pooled_vector",
        lambda source, model="", name=None: np.asarray(Image.open(source).resize((6, 6)), np.float32).ravel(),
    )
    monkeypatch.setattr(encoder_module, "QUICK", 10**6)
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(30):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / f"{i:02d}.png")
        os.utime(folder / f"{i:02d}.png", (time.time() - 100,) * 2)
    return folder


def test_a_compressed_index_finds_what_the_plain_one_does_and_keeps_up_with_the_folder(photos):
    plain = SearchIndex(photos).update()
    small = SearchIndex(photos, compress=True).update()
    assert plain.compressed is None and len(small.compressed) == 30
    for query in ("03.png", "29.png"):
        expected, found = plain.search(photos / query), small.search(photos / query)
        assert [m.image for m in found] == [m.image for m in expected]
        assert [m.distance for m in found] == pytest.approx([m.distance for m in expected], abs=1e-6)
    axes = np.array(small.compressed.rotation)
    (photos / "05.png").unlink()
    shutil.copy(photos / "07.png", photos / "copy.png")
    Image.fromarray(np.full((8, 8, 3), 90, np.uint8)).save(photos / "00a.png")
    again = SearchIndex(photos).update()
    assert len(again.compressed) == len(again) == 31 and np.array_equal(again.compressed.rotation, axes)
    assert os.path.basename(again.search(photos / "07.png", top=1)[0].image) == "copy.png"
    assert SearchIndex(photos, compress=False).update().compressed is None
    assert SearchIndex(photos).update().compressed is None


def test_a_large_collection_is_compressed_by_itself(photos, monkeypatch):
    monkeypatch.setattr(folder_index, "LARGE", 30)
    assert SearchIndex(photos).update().compressed is not None
    with pytest.raises(ValueError, match="no vectors"):
        SearchIndex(photos, "smp", compress=True)
