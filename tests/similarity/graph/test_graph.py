# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours, spectrum and diffusion against their literal formulas on dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from joblib import parallel_config
from scipy import sparse

from patchbag.similarity.graph import neighbors
from patchbag.similarity.graph.choice import choose_diffusion, fit_sharpness, known_labels, left_out_scores
from patchbag.similarity.graph.diffusion import DiffusionBasis
from patchbag.similarity.graph.image_graph import ImageGraph, kernel_vectors, unit_rows
from patchbag.similarity.graph.kernel import DiffusionKernel
from patchbag.similarity.graph.neighbors import hubness, nearest, without_hubs
from patchbag.similarity.graph.spectrum import leading_eigenvectors, normalized

RNG = np.random.default_rng(0)
VECTORS = unit_rows(RNG.normal(size=(90, 12)))


def blobs(n_classes=4, per_class=40, dimension=16, spread=0.25, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n_classes * per_class) % n_classes
    return np.abs(np.eye(dimension)[y] + spread * rng.normal(size=(len(y), dimension))), y


def dense_affinities(vectors, k):
    """W of the module's text, with loops."""
    cosines = (vectors @ vectors.T).astype(float)
    np.fill_diagonal(cosines, -2)
    order = np.argsort(-cosines, axis=1)
    hub = np.array([cosines[i, order[i, : neighbors.HUB]].mean() for i in range(len(vectors))])
    affinity = np.zeros_like(cosines)
    for i, row in enumerate(cosines):
        near = order[i, : neighbors.WIDER * k]
        chosen = near[np.argsort(-(row[near] - hub[near] / 2), kind="stable")[:k]]
        affinity[i, chosen] = np.maximum(row[chosen], 0) ** 3
    return (affinity + affinity.T) / 2


@pytest.mark.parametrize("tile", [7, 4096])
def test_nearest_neighbours_are_those_of_all_cosines(monkeypatch, tile):
    monkeypatch.setattr(neighbors, "COLUMNS", tile)
    monkeypatch.setattr(neighbors, "ROWS", 13)
    cosines = VECTORS @ VECTORS.T
    np.fill_diagonal(cosines, -2)
    with parallel_config("threading", n_jobs=2):
        indices, found = nearest(VECTORS, 9)
    np.testing.assert_array_equal(indices, np.argsort(-cosines, axis=1, kind="stable")[:, :9])
    np.testing.assert_allclose(found, -np.sort(-cosines, axis=1)[:, :9], atol=1e-6)
    queries = unit_rows(RNG.normal(size=(5, 12)))
    indices, _ = nearest(VECTORS, 3, queries)
    np.testing.assert_array_equal(indices, np.argsort(-queries @ VECTORS.T, axis=1)[:, :3])


def test_hubs_are_discounted():
    indices, cosines = nearest(VECTORS, 30)
    hub = hubness(cosines)
    np.testing.assert_allclose(hub, cosines[:, :10].mean(axis=1), atol=1e-6)
    kept, values = without_hubs(indices, cosines, hub, 10)
    for i in range(0, 90, 11):
        expected = indices[i][np.argsort(-(cosines[i] - hub[indices[i]] / 2), kind="stable")[:10]]
        np.testing.assert_array_equal(kept[i], expected)
        np.testing.assert_allclose(values[i], VECTORS[i] @ VECTORS[expected].T, atol=1e-6)


@pytest.mark.parametrize("m", [5, 60])
def test_leading_eigenvectors_are_those_of_the_dense_matrix_with_several_components(m):
    parts = [dense_affinities(VECTORS[a:b], 6) for a, b in ((0, 40), (40, 89))]
    alone = sparse.coo_array((1, 1))  # the last image has no neighbour
    affinity = sparse.block_diag([*map(sparse.coo_array, parts), alone]).tocsr()
    values, vectors = leading_eigenvectors(affinity, m)
    similarity, degrees = normalized(affinity)
    np.testing.assert_allclose(degrees, np.asarray(affinity.sum(axis=1)).ravel())
    np.testing.assert_allclose(values, np.sort(np.linalg.eigvalsh(similarity.toarray()))[::-1][:m], atol=1e-5)
    np.testing.assert_allclose(similarity @ vectors, vectors * values, atol=1e-4)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(m), atol=1e-6)
    np.testing.assert_allclose(values[:2], 1.0)


def test_the_graph_has_the_affinities_of_the_text():
    X, _ = blobs()
    graph = ImageGraph.from_vectors(X, n_neighbors=8)
    powered = np.sqrt(X) - np.sqrt(X).mean(axis=0)
    vectors = powered / np.linalg.norm(powered, axis=1, keepdims=True)
    np.testing.assert_allclose(graph.vectors, vectors, atol=1e-5)
    affinity = dense_affinities(vectors.astype(np.float32), 8)
    np.testing.assert_allclose(graph.degrees, affinity.sum(axis=1), rtol=1e-4)
    scale = 1 / np.sqrt(affinity.sum(axis=1))
    expected = np.sort(np.linalg.eigvalsh(scale[:, None] * affinity * scale))[::-1]
    np.testing.assert_allclose(graph.eigenvalues, expected, atol=1e-5)


@pytest.mark.parametrize("power", [1, 2])
def test_diffusion_is_the_inverse_of_the_text_with_a_unit_diagonal(power):
    X, _ = blobs()
    graph = ImageGraph.from_vectors(X, n_neighbors=8)
    values, vectors = graph.eigenvalues, graph.eigenvectors
    similarity = (vectors * np.maximum(values, 0)) @ vectors.T
    inverse = np.linalg.inv(np.eye(len(X)) - 0.9 * similarity)
    spread = np.linalg.matrix_power(inverse - np.eye(len(X)), power) + np.eye(len(X))
    scale = 1 / np.sqrt(np.diagonal(spread))
    images = np.array([3, 50, 7])
    found = DiffusionBasis.from_graph(graph, 0.9, power).columns(images)
    np.testing.assert_allclose(found, (scale[:, None] * spread * scale)[:, images], atol=1e-8)


def test_a_new_image_is_placed_where_its_twin_is():
    X, _ = blobs()
    graph = ImageGraph.from_vectors(X, n_neighbors=8, n_eigenvectors=4)
    new = graph.prepare(X[:20] + 1e-4)
    placed = DiffusionBasis.from_graph(graph, 0.9).place(graph.place(new))
    known = DiffusionBasis.from_graph(graph, 0.9).features[:20]
    cosine = np.einsum("ij,ij->i", unit_rows(placed), unit_rows(known))
    assert cosine.min() > 0.99
    with pytest.raises(ValueError, match="vectors of 16 numbers, got 3"):
        graph.prepare(X[:, :3])


def test_vectors_of_a_kernel_have_its_inner_products():
    X, _ = blobs()
    kernel = X @ X.T
    vectors = kernel_vectors(kernel)
    np.testing.assert_allclose(vectors @ vectors.T, kernel, atol=1e-6)
    assert kernel_vectors(kernel, 50).shape[1] <= 50


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((1, 3)), "at least two images"),
        (np.ones(4), "one vector per image"),
        (np.array([[1.0, np.nan], [0.0, 1.0]]), "vector of image 0 of 2"),
    ],
)
def test_bad_vectors_are_a_clear_error(X, message):
    with pytest.raises(ValueError, match=message):
        ImageGraph.from_vectors(X)


def test_images_that_are_all_alike_make_a_graph():
    graph = ImageGraph.from_vectors(np.ones((30, 4)))
    assert np.isfinite(graph.eigenvectors).all() and np.isfinite(DiffusionBasis.from_graph(graph, 0.9).features).all()


# --- what the labels choose ------------------------------------------------------------------------------------------


def test_left_out_scores_are_those_of_refits():
    X, y = blobs(per_class=6)
    kernel = X @ X.T
    scores = left_out_scores(kernel, y, 0.1)
    for i in (0, 7, 23):
        rest = np.delete(np.arange(len(y)), i)
        targets = (y[rest, None] == np.arange(4)) / np.bincount(y[rest])
        expected = kernel[i, rest] @ np.linalg.solve(kernel[np.ix_(rest, rest)] + 0.1 * np.eye(len(rest)), targets)
        np.testing.assert_allclose(scores[i], expected, atol=1e-8)
    alone = left_out_scores(kernel[:6, :6], np.array([0, 1, 0, 1, 0, 2]))
    assert np.isneginf(alone[5, 2]) and np.isfinite(alone[:5, 2]).all()


def test_sharpness_is_recovered_and_stays_finite_where_all_are_right():
    scores = RNG.normal(size=(4000, 5))
    p = np.exp(4 * scores) / np.exp(4 * scores).sum(axis=1, keepdims=True)
    drawn = (p.cumsum(axis=1) > RNG.random((4000, 1))).argmax(axis=1)
    found = fit_sharpness(scores, drawn)
    assert np.exp(found.log) == pytest.approx(4, rel=0.1) and found.deviation < 0.05
    right = fit_sharpness(np.eye(3) * 2, np.arange(3))
    assert right.log < 4 and right.deviation > 0.3


def test_labels_that_cut_through_clusters_choose_the_plain_kernel():
    rng = np.random.default_rng(1)
    cluster = np.arange(300) % 6
    X = np.hstack([3 * np.eye(6)[cluster], rng.normal(size=(300, 2))])  # the classes are in the last two numbers
    y = (X[:, 6] > 0).astype(int)
    graph = ImageGraph.from_vectors(X, power=1.0)
    some = rng.permutation(300)[:60]
    assert choose_diffusion(graph, some, y[some])[1] > 0
    assert choose_diffusion(graph, some, cluster[some])[1] == 0
    assert choose_diffusion(graph, some[:1], y[some[:1]]) == (0.95, 0.0)
    labels = [int(y[i]) if i in some else None for i in range(300)]
    assert DiffusionKernel(entry_power=1.0).fit(X, labels).mix_ > 0
    with pytest.raises(ValueError, match="300 images but y has 2"):
        known_labels([1, 2], 300)


def test_the_kernel_of_a_pool_is_definite_and_new_images_have_rows():
    X, y = blobs()
    kernel = DiffusionKernel(alpha=0.9, mix=0.2, n_neighbors=8)
    gram = kernel.fit_transform(X)
    np.testing.assert_allclose(np.diagonal(gram), 1.0, atol=1e-6)
    assert np.linalg.eigvalsh(gram)[0] > -1e-9
    rows = kernel.transform(X[:8] + 1e-4)
    assert rows.shape == (8, 160)
    same = y[:8, None] == y
    assert rows[same].mean() > 5 * np.abs(rows[~same].mean())
