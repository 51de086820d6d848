"""The estimator: every algorithm, scikit-learn's interface, adding, taking out, files."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import DBSCAN
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline

from oracles import bregman as oracle
from patchbag import BregmanNeighbors
from patchbag.neighbors.divergences import Generator, mahalanobis
from patchbag.neighbors.index import FEW


def histograms(n: int, d: int = 8, seed: int = 0, clusters: int = 30) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).dirichlet(np.ones(d), clusters)
    X = rng.standard_gamma(300 * centres[rng.integers(clusters, size=n)] + 1e-2) + 1e-9
    return X / X.sum(axis=1, keepdims=True)


X, Q = histograms(FEW + 400), histograms(40, seed=1)


@pytest.mark.parametrize("side", ["right", "left", "symmetric", "mixed"])
def test_every_exact_algorithm_finds_the_same(side):
    expected = oracle.nearest("kl", side, Q, X, 5, 0.2)
    for algorithm in ("auto", "brute", "ball", "vantage"):
        model = BregmanNeighbors(side=side, mixing=0.2, algorithm=algorithm, smoothing=0.0, random_state=0).fit(X)
        np.testing.assert_array_equal(model.kneighbors(Q)[1], expected)
        np.testing.assert_array_equal(model.kneighbors(Q[:1], return_distance=False), expected[:1])


def test_auto_takes_what_was_faster():
    model = BregmanNeighbors(random_state=0).fit(X)
    assert len(model.index_.costs) == 6 and min(model.index_.costs[4:]) > 0
    model.index_.costs = (1.0, 1e-3, 0.01, 1e-2, 0.1, 0.2)
    assert [model.index_.choose(m) for m in (1, 2, 100, 1000)] == ["brute", "ball", "ball", "brute"]
    assert BregmanNeighbors().fit(X[:100]).index_.algorithm == "brute"
    assert BregmanNeighbors(max_leaves=3).fit(X[:100]).index_.algorithm == "ball"


def test_squared_euclidean_is_scikit_learns():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(300, 4))
    ours = BregmanNeighbors(divergence="squared_euclidean").fit(data)
    theirs = NearestNeighbors().fit(data)
    for asked in (None, data[:20] + 0.1):
        distances, indices = ours.kneighbors(asked)
        expected, other = theirs.kneighbors(asked)
        np.testing.assert_array_equal(indices, other)
        np.testing.assert_allclose(distances, expected**2, rtol=1e-9)
        graph = ours.kneighbors_graph(asked, mode="distance").toarray()
        np.testing.assert_allclose(graph, theirs.kneighbors_graph(asked, mode="distance").toarray() ** 2, rtol=1e-9)
    distances, indices = ours.radius_neighbors(data[:20], 1.5)
    expected = theirs.radius_neighbors(data[:20], np.sqrt(1.5), return_distance=False)
    for found, other in zip(indices, expected):
        np.testing.assert_array_equal(found, np.sort(other))
    assert all(i not in found for i, found in enumerate(ours.radius_neighbors(radius=1.5, return_distance=False)))


def test_equal_points_are_not_their_own_neighbours():
    data = np.tile(histograms(3), (4, 1))
    indices = BregmanNeighbors(n_neighbors=3).fit(data).kneighbors(return_distance=False)
    assert np.all(indices != np.arange(12)[:, None])
    assert np.all(indices % 3 == (np.arange(12) % 3)[:, None])


def test_it_stands_in_a_pipeline_before_scikit_learns_neighbours():
    y = np.argmax(X, axis=1)
    model = make_pipeline(BregmanNeighbors(n_neighbors=5), KNeighborsClassifier(5, metric="precomputed"))
    assert np.mean(model.fit(X, y).predict(Q) == np.argmax(Q, axis=1)) > 0.9
    assert model[:-1].get_feature_names_out()[-1] == f"bregmanneighbors{len(X) - 1}"


@pytest.mark.parametrize("algorithm", ["brute", "ball"])
def test_all_points_within_a_radius_are_a_graph_that_scikit_learn_clusters(algorithm):
    model = BregmanNeighbors(side="symmetric", algorithm=algorithm, smoothing=0.0, random_state=0).fit(X)
    full = np.array([oracle.divergences("kl", "symmetric", x, X) for x in X[:50]])
    radius = np.quantile(full, 0.02)
    graph = model.radius_neighbors_graph(X[:50], radius, "distance")
    np.testing.assert_allclose(graph.toarray(), np.where(full <= radius, full, 0), atol=1e-12)
    assert all(np.all(np.diff(graph[i].data) >= 0) for i in range(50))
    np.testing.assert_array_equal(model.radius_neighbors_graph(X[:50], radius).toarray(), full <= radius)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it would warn of rows that are not in order
        found = DBSCAN(radius, metric="precomputed").fit_predict(model.radius_neighbors_graph(None, radius, "distance"))
    literal = [oracle.divergences("kl", "symmetric", x, X) for x in X]
    np.testing.assert_array_equal(found, DBSCAN(radius, metric="precomputed").fit_predict(np.array(literal)))


@pytest.mark.parametrize("algorithm", ["brute", "ball", "vantage", "graph", "auto"])
def test_points_are_added_and_taken_out(algorithm):
    data = histograms(2300)
    model = BregmanNeighbors(n_neighbors=4, algorithm=algorithm, smoothing=0.0, random_state=0, beam=200)
    model.partial_fit(data[:2100]).partial_fit(data[2100:2200])
    gone = np.unique(np.concatenate([model.kneighbors(Q, return_distance=False)[:, 0], [0, 2150]]))
    model.remove(gone)
    alive = np.setdiff1d(np.arange(2200), gone)
    np.testing.assert_array_equal(model.kneighbors(Q)[1], alive[oracle.nearest("kl", "right", Q, data[alive], 4)])
    model.partial_fit(data[2200:]).partial_fit(histograms(400, seed=2))  # the tree is made anew
    data = np.vstack([data, histograms(400, seed=2)])
    alive = np.setdiff1d(np.arange(2700), gone)
    np.testing.assert_array_equal(model.kneighbors(Q)[1], alive[oracle.nearest("kl", "right", Q, data[alive], 4)])
    found = model.radius_neighbors(Q[:2], np.inf, return_distance=False)
    assert all(np.array_equal(indices, alive) for indices in found)
    with pytest.raises(IndexError, match="0 to 2699"):
        model.remove(2700)


def test_an_index_that_began_with_few_points_or_lost_all_gets_its_tree():
    model = BregmanNeighbors(4, smoothing=0.0, random_state=0).fit(X[:100]).partial_fit(X[100:200])
    assert model.index_.tree is None
    model.partial_fit(X[200:])
    assert model.index_.tree is not None and model.index_.costs is not None
    np.testing.assert_array_equal(model.kneighbors(Q)[1], oracle.nearest("kl", "right", Q, X, 4))
    model = BregmanNeighbors(4, algorithm="ball", smoothing=0.0, random_state=0).fit(X[:100])
    model.remove(np.arange(100)).partial_fit(X[:5]).remove(np.arange(100, 105)).partial_fit(X)
    assert model.query_stats(Q)["leaves"].min() > 0
    np.testing.assert_array_equal(model.kneighbors(Q)[1] - 105, oracle.nearest("kl", "right", Q, X, 4))


@pytest.mark.parametrize("algorithm", ["brute", "ball", "vantage", "graph", "auto", "sample"])
def test_it_travels_and_is_saved_without_pickle(algorithm, tmp_path):
    model = BregmanNeighbors(3, side="symmetric", algorithm=algorithm, sample=0.5, random_state=0).fit(X)
    expected = model.kneighbors(Q)
    model.save(tmp_path / "index")
    opened = BregmanNeighbors.load(tmp_path / "index")
    assert isinstance(opened.index_.points.vectors.base, np.memmap)
    assert opened.get_params()["side"] == "symmetric" and opened.divergence == "kl"
    for other in (opened, pickle.loads(pickle.dumps(model))):
        for a, b in zip(other.kneighbors(Q), expected):
            np.testing.assert_array_equal(a, b)
    opened.partial_fit(Q).remove(0)
    assert np.all(opened.kneighbors(Q, 1)[0] < 1e-9) or algorithm == "sample"
    assert not list((tmp_path / "index").glob(".*"))


def test_files_that_are_none_are_told(tmp_path):
    with pytest.raises(ValueError, match="not a folder written by"):
        BregmanNeighbors.load(tmp_path)
    model = BregmanNeighbors().fit(X[:50])
    model.save(tmp_path / "a")
    next((tmp_path / "a").glob("points.rows*")).write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"points\.rows-\w+\.npy is missing or damaged"):
        BregmanNeighbors.load(tmp_path / "a")
    model = BregmanNeighbors(algorithm="ball", leaf_size=4).fit(X[:50])
    for name, value in (("tree.child", 10**6), ("tree.order", -1), ("tree.stop", 51), ("leaves.node", 10**6)):
        model.save(tmp_path / "c")
        file = next((tmp_path / "c").glob(f"{name}-*"))
        forged = np.load(file)
        forged[0] = value
        np.save(file, forged)
        with pytest.raises(ValueError, match=f"{name} has a value"):
            BregmanNeighbors.load(tmp_path / "c")
    quartic = Generator("quartic", lambda x: (x**4).sum(-1), lambda x: 4 * x**3, lambda y: np.cbrt(y / 4))
    with pytest.raises(TypeError, match="quartic is made of functions"):
        BregmanNeighbors(divergence=quartic).fit(X[:50]).save(tmp_path / "b")
    with pytest.raises(ValueError, match="no compiled version"):
        BregmanNeighbors(divergence=quartic, algorithm="ball").fit(X[:50])


def test_mahalanobis_is_searched_by_trees_and_saved(tmp_path):
    A = np.diag(np.arange(1.0, 9.0))
    model = BregmanNeighbors(divergence=mahalanobis(A), algorithm="ball", random_state=0).fit(X)
    full = (((Q[:, None] - X) ** 2) * np.arange(1.0, 9.0)).sum(axis=2)
    expected = np.argsort(full, axis=1, kind="stable")[:, :5]
    model.save(tmp_path / "m")
    for one in (model, BregmanNeighbors.load(tmp_path / "m")):
        np.testing.assert_array_equal(one.kneighbors(Q)[1], expected)


def test_approximate_searches_compute_fewer_divergences_and_say_how_many():
    for options in (
        {"algorithm": "sample", "sample": 0.1},
        {"max_leaves": 2},
        {"algorithm": "vantage", "max_leaves": 2},
    ):
        model = BregmanNeighbors(random_state=0, **options).fit(X)
        stats = model.query_stats(Q)
        assert np.all(stats["divergences"] < 0.2 * len(X))
        assert np.all(stats["leaves"] == (2 if "max_leaves" in options else 0))
        distances, indices = model.kneighbors(Q)
        np.testing.assert_allclose(distances[0], oracle.divergences("kl", "right", Q[0], X)[indices[0]], rtol=1e-3)
    assert np.all(BregmanNeighbors(algorithm="brute").fit(X).query_stats(Q)["divergences"] == len(X))


@pytest.mark.parametrize("side", ["right", "left", "symmetric"])
@pytest.mark.parametrize("divergence", ["kl", "itakura_saito", "squared_euclidean"])
def test_the_graph_finds_almost_all_neighbours_with_few_divergences(divergence, side):
    model = BregmanNeighbors(10, divergence=divergence, side=side, algorithm="graph", smoothing=0.0, random_state=0)
    found = model.fit(X).kneighbors(Q)[1]
    expected = oracle.nearest(divergence, side, Q, X, 10)
    assert np.mean([np.isin(a, b).mean() for a, b in zip(found, expected)]) > 0.93
    assert model.query_stats(Q)["divergences"].mean() < len(X) / 7
    one_leaf = BregmanNeighbors(1, divergence=divergence, side=side, algorithm="graph", beam=4, max_leaves=1)
    assert one_leaf.fit(X).query_stats(Q)["divergences"].mean() < len(X) / 25


@pytest.mark.parametrize("options", [{}, {"max_leaves": 3}])
@pytest.mark.parametrize("algorithm", ["graph", "ball", "vantage", "brute"])
def test_one_row_finds_what_a_batch_finds(algorithm, options):
    model = BregmanNeighbors(4, side="symmetric", algorithm=algorithm, random_state=0, **options).fit(X)
    for _ in range(2):
        expected = model.kneighbors(Q)
        for i in range(0, len(Q), 4):
            assert model.index_.search_row(Q[i : i + 1], 4) is not None
            for row in (Q[i : i + 1], np.asfortranarray(np.tile(Q[i], (2, 1)))[:1], Q[i : i + 1].tolist()):
                for found, one in zip(expected, model.kneighbors(row)):
                    np.testing.assert_array_equal(one[0], found[i])
        model.partial_fit(Q[:20]).remove(expected[1][:, 0])
    for bad, told in ((np.nan, "NaN"), (np.inf, "infinity"), (-1.0, "entry 0 of row 0 is -")):
        with pytest.raises(ValueError, match=told):
            model.kneighbors(np.array([[bad, *np.ones(7)]]))


def test_a_graph_whose_near_points_are_all_gone_still_answers():
    model = BregmanNeighbors(3, algorithm="graph", beam=3, smoothing=0.0, random_state=0).fit(X)
    near = oracle.nearest("kl", "right", Q[:1], X, len(X) // 2)[0]
    alive = np.setdiff1d(np.arange(len(X)), near)
    model.remove(near)
    np.testing.assert_array_equal(
        model.kneighbors(Q[:1])[1][0], alive[oracle.nearest("kl", "right", Q[:1], X[alive], 3)][0]
    )


@pytest.mark.parametrize("algorithm", ["ball", "vantage", "graph", "auto"])
@pytest.mark.parametrize("side", ["right", "left", "symmetric"])
def test_trees_find_all_points_within_a_radius(algorithm, side, tmp_path):
    model = BregmanNeighbors(2, side=side, algorithm=algorithm, radius=0.05, smoothing=0.0, random_state=0).fit(X)
    plain = BregmanNeighbors(2, side=side, algorithm="brute", radius=0.05, smoothing=0.0).fit(X)
    model.save(tmp_path / "index")
    for one in (model, BregmanNeighbors.load(tmp_path / "index")):
        for radius in (None, 0.0, 0.3, np.inf):
            for found, expected in zip(one.radius_neighbors(Q, radius), plain.radius_neighbors(Q, radius)):
                for a, b in zip(found, expected):
                    np.testing.assert_array_equal(a, b)
    own = model.radius_neighbors(radius=0.01, return_distance=False)
    assert all(i not in some for i, some in enumerate(own)) and sum(map(len, own)) > 0


def test_the_number_of_workers_changes_nothing():
    one = BregmanNeighbors(algorithm="ball", n_jobs=1, random_state=0).fit(X).kneighbors(np.tile(Q, (4, 1)))
    two = BregmanNeighbors(algorithm="ball", n_jobs=2, random_state=0).fit(X).kneighbors(np.tile(Q, (4, 1)))
    np.testing.assert_array_equal(one[1], two[1])
    np.testing.assert_array_equal(one[0], two[0])


def test_what_cannot_be_asked_is_told():
    for ask in ("kneighbors", "radius_neighbors", "kneighbors_graph", "query_stats", "transform"):
        with pytest.raises(NotFittedError):
            getattr(BregmanNeighbors(), ask)(Q)
    model = BregmanNeighbors().fit(X[:50])
    with pytest.raises(ValueError, match="rows of 8 numbers, got 5"):
        model.kneighbors(Q[:, :5])
    for asked, k, told in ((Q, 51, "points, 50, got 51"), (Q, 2.0, "got 2.0"), (None, 50, "other points, 49, got 50")):
        with pytest.raises(ValueError, match=f"between 1 and the number of .*{told}"):
            model.kneighbors(asked, k)
    for radius in (-1.0, np.nan, "all"):
        with pytest.raises(ValueError, match="radius must be a number of at least 0"):
            model.radius_neighbors(Q, radius)
    with pytest.raises(ValueError, match="mode must be"):
        model.kneighbors_graph(Q, mode="distances")
    with pytest.raises(TypeError, match=r"got bool; np\.flatnonzero"):
        model.remove(np.arange(50) < 5)
    with pytest.raises(ValueError, match=r"\(m, 2, d\), got \(3, 4, 8\)"):
        BregmanNeighbors(side="mixed").fit(X[:50]).kneighbors(np.ones((3, 4, 8)))
    with pytest.raises(ValueError, match="NaN"):
        model.kneighbors(np.full((1, 8), np.nan))
    with pytest.raises(ValueError, match="'side' parameter"):
        BregmanNeighbors(side="up").fit(X[:50])
    with pytest.raises(ValueError, match="entry 0 of row 0 is 0"):
        BregmanNeighbors(smoothing=0.0).fit(np.eye(3)[::-1])
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize("algorithm", ["brute", "ball", "vantage"])
@pytest.mark.parametrize("side", ["right", "left", "symmetric"])
@pytest.mark.parametrize("divergence", ["generalized_kl", "itakura_saito", "squared_euclidean"])
def test_the_unit_of_the_numbers_changes_no_neighbour(divergence, side, algorithm):
    options = {"divergence": divergence, "side": side, "algorithm": algorithm, "leaf_size": 6, "random_state": 0}
    data = np.random.default_rng(0).gamma(2.0, size=(90, 4)) + 0.01
    expected = BregmanNeighbors(3, **options).fit(data).kneighbors(data)[1]
    for unit in (1e-100, 1e-30, 1e-12, 1e12, 1e30, 1e60):
        if unit >= 1e-30 or divergence != "squared_euclidean":  # squares of 1e-100 are below the smallest float
            found = BregmanNeighbors(3, **options).fit(data * unit).kneighbors(data * unit)[1]
            np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=r"differ by less than|is too large for"):
        BregmanNeighbors(3, **options).fit(data * 1e-200)


@pytest.mark.parametrize("algorithm", ["brute", "ball", "vantage", "graph"])
@pytest.mark.parametrize(
    ("divergence", "size", "large"), [("squared_euclidean", 1e160, 1e20), ("exponential", 1e4, 50)]
)
def test_numbers_that_overflow_are_an_error_and_not_neighbours_out_of_nowhere(algorithm, divergence, size, large):
    data = np.random.default_rng(0).normal(size=(60, 3))
    options = {"divergence": divergence, "algorithm": algorithm, "leaf_size": 8, "random_state": 0}
    far = np.append(data[:7], np.full((1, 3), size), axis=0)
    with pytest.raises(ValueError, match="row 7 is too large for the"):
        BregmanNeighbors(3, **options).fit(far)
    model = BregmanNeighbors(3, **options).fit(data)
    with pytest.raises(ValueError, match="row 7 is too large for the"):
        model.kneighbors(far)
    with pytest.raises(ValueError, match="too large"):
        model.kneighbors(far[-1:])
    with pytest.raises(ValueError, match="row 7 is too large for the"):
        model.radius_neighbors(far, 1.0)
    with pytest.raises(ValueError, match="row 7 is too large for the"):
        model.partial_fit(far)
    with pytest.raises(ValueError, match="far larger than the points of the index"):
        model.partial_fit(np.abs(data) * large)  # infinite in float32, which is how points that are gone are marked


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [("plan", "max_leaves", "2"), ("plan", "branching", None), ("state", "scale", [1.0, 1.0, 1.0, 1.0])],
)
def test_a_manifest_that_is_not_as_it_was_written_is_refused(tmp_path, part, name, value):
    import json

    X = np.random.default_rng(0).random((60, 4)) + 0.1
    BregmanNeighbors(algorithm="vantage", leaf_size=8).fit(X).save(tmp_path / "index")
    file = tmp_path / "index" / "neighbors.json"
    manifest = json.loads(file.read_text())
    manifest[part][name] = value
    file.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=f"damaged: {name}"):
        BregmanNeighbors.load(tmp_path / "index")


def test_a_forged_tree_gives_an_error_and_not_infinite_divergences(tmp_path):
    X = np.random.default_rng(0).random((60, 4)) + 0.1
    BregmanNeighbors(algorithm="vantage", leaf_size=8).fit(X).save(tmp_path / "index")
    files = {name: next((tmp_path / "index").glob(f"tree.{name}*.npy")) for name in ("start", "stop", "inner")}
    np.save(files["stop"], np.load(files["start"]))  # no points in any leaf
    with pytest.raises(ValueError, match="not finite"):
        BregmanNeighbors.load(tmp_path / "index").kneighbors(X[:20], 5)
    np.save(files["inner"], np.full_like(np.load(files["inner"]), np.nan))
    with pytest.raises(ValueError, match="no radius"):
        BregmanNeighbors.load(tmp_path / "index")


def test_arrays_that_no_index_has_are_refused(tmp_path):
    X = np.random.default_rng(0).random((300, 6)) + 0.1
    BregmanNeighbors(divergence="itakura_saito", algorithm="graph", random_state=0).fit(X).save(tmp_path / "index")
    edges, rows = (next((tmp_path / "index").glob(f"{name}*.npy")) for name in ("graph.edges", "points.rows"))
    good = np.load(edges)
    np.save(edges, good.astype(np.int64))
    with pytest.raises(ValueError, match=r"graph\.edges is int64, not int32"):
        BregmanNeighbors.load(tmp_path / "index")
    np.save(edges, good)
    X[7, 3] = 0
    np.save(rows, X)
    with pytest.raises(ValueError, match=r"points\.rows has entries that itakura_saito is not defined for"):
        BregmanNeighbors.load(tmp_path / "index")
