"""Trees: exact where they say so, their bounds sound, and built as the paper says."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from oracles import bregman as oracle
from patchbag.neighbors import ball_tree
from patchbag.neighbors.ball_tree import grow_ball_tree, is_normal, two_means
from patchbag.neighbors.divergences import GENERATORS
from patchbag.neighbors.forms import Form, Points
from patchbag.neighbors.geodesic import ball_holds_all_near, ball_is_beyond, walk
from patchbag.neighbors.leaf_search import gather_leaves, search_leaves
from patchbag.neighbors.sampling import draw_sample, expected_rank
from patchbag.neighbors.tree_search import search_tree
from patchbag.neighbors.trees import Tree, as_query, measure
from patchbag.neighbors.vantage_tree import grow_vantage_tree

SIDES = {"right": 0.0, "left": 1.0, "symmetric": 0.5, "mixed": 0.25}


def draw(name: str, n: int, d: int, seed: int = 0, clusters: int = 25) -> np.ndarray:
    """Clustered rows in the domain of a divergence; every tenth of them is there twice."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(100).normal(size=(clusters, d))
    X = centres[rng.integers(clusters, size=n)] + 0.2 * rng.normal(size=(n, d))
    if GENERATORS[name].lower == 0:
        X = np.exp(X)
    if GENERATORS[name].simplex:
        X /= X.sum(axis=1, keepdims=True)
    X[n // 2 : n // 2 + n // 10] = X[: n // 10]
    return X


def seed() -> np.random.RandomState:
    return np.random.RandomState(0)


@njit
def set_seed(number: int) -> None:
    """Of the random numbers of compiled loops, which are others than NumPy's."""
    np.random.seed(number)  # noqa: NPY002


def grow(kind: str, points: Points) -> Tree:
    if kind == "vantage":
        return grow_vantage_tree(points, leaf_size=20, random_state=seed())
    return grow_ball_tree(points, leaf_size=20, relocate=kind == "relocated", random_state=seed())


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", GENERATORS)
def test_exact_search_of_trees_finds_what_the_formula_says_ties_included(name, side):
    X = draw(name, 1200, 9)
    Q = np.vstack([draw(name, 25, 9, seed=1), X[:15]])
    form = Form(GENERATORS[name], SIDES[side])
    points = Points.prepare(form, X)
    queries = points.ask(Q, Q)
    expected = oracle.nearest(name, side, Q, X, 6, SIDES[side])
    for kind in ("ball", "relocated", "vantage"):
        tree = grow(kind, points)
        _, indices, stats = search_tree(points, tree, queries, 6)
        np.testing.assert_array_equal(indices, expected)
        assert stats[:, 1].mean() < 0.9 * tree.n_leaves  # some leaves were left out
        if kind != "vantage":
            leaves = gather_leaves(points, tree)
            _, indices, stats = search_leaves(points, tree, leaves, queries, 6)
            np.testing.assert_array_equal(indices, expected)
            assert stats[:, 1].mean() < 0.9 * len(leaves.node)


def test_mixed_queries_may_have_two_sides():
    X, left, right = (draw("kl", n, 6, seed=s) for n, s in ((800, 0), (20, 1), (20, 2)))
    form = Form(GENERATORS["kl"], 0.3)
    points = Points.prepare(form, X)
    queries = points.ask(left, right)
    kl = oracle.LITERAL["kl"]
    full = np.array([0.7 * kl(l, X) + 0.3 * kl(X, r) for l, r in zip(left, right)])
    tree = grow("relocated", points)
    for found in (
        search_leaves(points, tree, gather_leaves(points, tree), queries, 5)[1],
        search_tree(points, tree, queries, 5)[1],
    ):
        np.testing.assert_array_equal(found, np.argsort(full, axis=1, kind="stable")[:, :5])


@pytest.mark.parametrize("side", ["right", "left", "symmetric"])
@pytest.mark.parametrize("name", GENERATORS)
def test_balls_are_left_out_only_where_no_point_is_near(name, side):
    form = Form(GENERATORS[name], SIDES[side])
    X, Q = draw(name, 400, 5), draw(name, 10, 5, seed=1)
    points = Points.prepare(form, X)
    tree = grow("vantage", points)
    codes, weights, split, _, _ = points.space
    queries = points.ask(Q, Q)
    beyond = inside = 0
    for i, q in enumerate(Q):
        found = oracle.divergences(name, side, q, X)
        psi = form.points(Q[i : i + 1])[0][0]
        h_query = queries.constant[i] - form.excess
        for node in range(len(tree.start)):
            members = found[tree.order[tree.start[node] : tree.stop[node]]]
            center = tree.phi[node]
            to_center = tree.h[node] - h_query - (center - queries.phi[i]) @ psi
            for limit in np.quantile(found, [0.01, 0.1]):
                known = (codes, weights, split, queries.phi[i], h_query, center, tree.h[node], to_center)
                out, steps = ball_is_beyond(*known, tree.outer[node], limit, 1e-12)
                assert steps <= 8
                held, _ = ball_holds_all_near(*known, tree.inner[node], limit, 1e-12)
                assert not ((out or held) and members.min() <= limit)
                beyond += out
                inside += held
    assert beyond > 30
    assert inside > 0 or name in ("exponential", "itakura_saito")


def test_the_walk_on_the_geodesic_is_short():
    form = Form(GENERATORS["kl"])
    X, Q = draw("kl", 600, 12), draw("kl", 15, 12, seed=1)
    points = Points.prepare(form, X)
    tree = grow("ball", points)
    codes, weights, split, _, _ = points.space
    queries = points.ask(Q, Q)
    steps = []
    for i in range(len(Q)):
        limit = np.sort(oracle.divergences("kl", "right", Q[i], X))[5]
        psi = np.log(Q[i])
        for node in range(len(tree.start)):
            to_center = tree.h[node] - queries.constant[i] - (tree.phi[node] - queries.phi[i]) @ psi
            known = (codes, weights, split, queries.phi[i], queries.constant[i], tree.phi[node], tree.h[node])
            steps.append(ball_is_beyond(*known, to_center, tree.outer[node], limit, 1e-12)[1])
    assert np.mean([s for s in steps if s]) < 3


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", [name for name, generator in GENERATORS.items() if generator.code is not None])
def test_a_point_as_a_query_is_the_query_of_its_row(name, side):
    X = draw(name, 40, 5)
    points = Points.prepare(Form(GENERATORS[name], SIDES[side]), X)
    phi, constant = points.form.queries(X, X)
    psi, conjugate = points.form.points(X)
    codes, weights, split, mu, _ = points.space
    for i in range(len(X)):
        found = np.empty(psi.shape[1])
        offset, dual, by_codes = as_query(points.space, psi[i] - mu, found)
        np.testing.assert_allclose(found, phi[i], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose([offset, dual], [constant[i] - phi[i] @ mu, conjugate[i]], atol=1e-9)
        np.testing.assert_allclose(by_codes, walk(codes, weights, split, phi[i], phi[i], 0.0)[0], atol=1e-9)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", [name for name, generator in GENERATORS.items() if generator.code is not None])
def test_iterations_end_where_every_point_is_nearer_to_the_centroid_of_its_own_half(name, side):
    points = Points.prepare(Form(GENERATORS[name], SIDES[side]), draw(name, 1500, 6), dtype=np.float64)
    vectors, order = points.vectors.copy(), np.arange(1500)
    set_seed(0)
    middle = two_means(points.space, vectors, points.bias.copy(), order, 0, 1500, 100, np.empty(1500))
    assert 0 < middle < 1500
    np.testing.assert_array_equal(vectors, points.vectors[order])
    found = np.empty((2, 1500))
    for half, of in enumerate((slice(middle), slice(middle, None))):
        measure(points.space, vectors, points.bias[order], 0, 1500, vectors[of].mean(axis=0), found[half])
    assert np.all((found[0] <= found[1] + 1e-12) == (np.arange(1500) < middle))


def test_the_second_seed_is_far_from_the_first():
    """Two clusters of very different sizes, far apart: by divergence both get a seed, at random hardly ever."""
    X = np.random.default_rng(0).normal(size=(400, 3)) * 1e-3
    X[:20] += 5
    points = Points.prepare(Form(GENERATORS["squared_euclidean"]), X)
    set_seed(0)
    for _ in range(20):
        vectors, bias, order = points.vectors.copy(), points.bias.copy(), np.arange(400)
        middle = two_means(points.space, vectors, bias, order, 0, 400, 0, np.empty(400, np.float32))
        assert set(order[:middle]) in (set(range(20)), set(range(20, 400)))


def test_leaves_hold_every_point_once_and_their_balls_cover_them():
    X = draw("kl", 1000, 8)
    form = Form(GENERATORS["kl"], 1.0)
    points = Points.prepare(form, X)
    for kind in ("ball", "relocated", "vantage"):
        tree = grow(kind, points)
        np.testing.assert_array_equal(np.sort(tree.order), np.arange(1000))
        for node in range(len(tree.start)):
            members = X[tree.order[tree.start[node] : tree.stop[node]]]
            center = np.exp(tree.phi[node])
            center /= center.sum()
            found = oracle.LITERAL["kl"](members, center) if len(members) else np.array([tree.outer[node]])
            assert found.max() <= tree.outer[node] + 1e-12 and found.min() >= min(tree.inner[node], found.max()) - 1e-12
            if tree.n_children[node]:
                children = np.arange(tree.child[node], tree.child[node] + tree.n_children[node])
                assert tree.start[children].min() == tree.start[node] and tree.stop[children].max() == tree.stop[node]
        sizes = (tree.stop - tree.start)[tree.n_children == 0]
        assert kind == "relocated" or sizes.max() <= 20
        if kind == "vantage":
            assert np.ptp(tree.depths()) <= 1


def test_more_leaves_find_more_and_all_leaves_find_all():
    X, Q = draw("kl", 3000, 16), draw("kl", 60, 16, seed=1)
    form = Form(GENERATORS["kl"])
    points = Points.prepare(form, X)
    queries = points.ask(Q, Q)
    tree = grow("relocated", points)
    expected = oracle.nearest("kl", "right", Q, X, 10)
    recall, cost = [], []
    for budget in (1, 4, 16, tree.n_leaves):
        _, indices, stats = search_tree(points, tree, queries, 10, max_leaves=budget)
        recall.append(np.mean([np.isin(a, b).mean() for a, b in zip(indices, expected)]))
        cost.append(stats[:, 0].mean())
    assert np.all(np.diff(recall) >= 0) and recall[2] > 0.9 and recall[3] == 1
    assert cost[0] < 100 < cost[-1]


def test_lloyd_iterations_and_more_children_make_other_trees():
    points = Points.prepare(Form(GENERATORS["kl"]), draw("kl", 3000, 8))
    options = {"leaf_size": 30, "relocate": False}
    plain = grow_ball_tree(points, branching=2, random_state=seed(), **options)
    assert plain.mean_branching() == 2
    wide = grow_ball_tree(points, branching=6, random_state=seed(), **options)
    assert 2 < wide.mean_branching() <= 6 and wide.depths().mean() < plain.depths().mean()
    careful = grow_ball_tree(points, branching=2, n_iter=10, random_state=seed(), **options)
    spread = [(t.outer[t.n_children == 0] * (t.stop - t.start)[t.n_children == 0]).sum() for t in (plain, careful)]
    assert spread[1] < spread[0]


def test_the_test_of_normality_is_anderson_and_darlings():
    rng = np.random.default_rng(0)
    for size in (20, 300):
        for sample in (rng.normal(3, 2, size), rng.random(size), np.repeat([0.0, 1.0], size // 2) + 0.1):
            noisy = sample + 1e-3 * rng.normal(size=len(sample))
            assert is_normal(noisy) == (oracle.anderson_darling(noisy) <= ball_tree.CRITICAL)


def test_equal_points_make_a_tree_too():
    X = np.tile([[0.2, 0.3, 0.5]], (500, 1))
    points = Points.prepare(Form(GENERATORS["kl"]), X)
    for kind in ("ball", "relocated", "vantage"):
        tree = grow(kind, points)
        _, indices, _ = search_tree(points, tree, points.ask(X[:2], X[:2]), 4)
        np.testing.assert_array_equal(indices, [[0, 1, 2, 3]] * 2)
        distances, _, stats = search_tree(points, tree, points.ask(X[:2], X[:2]), 4, max_leaves=20)
        np.testing.assert_allclose(distances, 0, atol=1e-12)
        assert np.all(stats[:, 1] <= 20)  # which is no search of all points, though all are equal


def test_the_expected_rank_of_a_sample_is_that_of_simulations():
    for alpha, n in ((0.3, 5), (0.05, 40)):
        rng = np.random.RandomState(0)
        kept = rng.random_sample((200_000, n)) < alpha
        ranks = np.where(kept.any(axis=1), kept.argmax(axis=1) + 1, n + 1)
        np.testing.assert_allclose(expected_rank(alpha, n), ranks.mean(), rtol=0.01)
    assert len(draw_sample(50, 1e-9, 7, seed())) == 7
