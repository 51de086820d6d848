"""UNN and MLNN as classifiers: the vote, the prototypes, the choice of rounds, confidence."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline

from patchbag import (
    BregmanNeighbors,
    Categorizer,
    FisherVector,
    InnerProductKernel,
    MAPAdaptation,
    MixtureKernel,
    MulticlassLeveragedNeighbors,
    Normalizer,
    PyramidMatchKernel,
    UniversalMixture,
    UniversalNearestNeighbors,
    UniversalStatistics,
)
from patchbag.classifiers.confidence.left_out import energy
from patchbag.classifiers.confidence.temperature import fit_temperature
from patchbag.classifiers.prototypes import leveraged
from patchbag.classifiers.prototypes.edges import class_vectors, kernel_values
from patchbag.classifiers.prototypes.panel import Panel, Voter
from patchbag.classifiers.prototypes.search import FaissSearch, MetricSearch, nearest_others
from patchbag.classifiers.prototypes.witnesses import deciding_images, kept_images

BOTH = [UniversalNearestNeighbors, MulticlassLeveragedNeighbors]


def blobs(n, seed, spread=0.8):
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 3
    return rng.normal(size=(n, 2)) * spread + np.array([[0, 0], [3, 0], [0, 3]])[codes], np.array(list("abc"))[codes]


@pytest.fixture(scope="module")
def data():
    return *blobs(120, 0), *blobs(300, 1)


@pytest.mark.parametrize("model", BOTH)
def test_equal_coefficients_are_the_plain_knn_rule(model, data):
    X, y, queries, _ = data
    fitted = model(5, rounds=1.0, chooser="equal").fit(X, y)
    assert len(fitted.prototypes_) == len(X)
    plain = KNeighborsClassifier(5).fit(X, y)
    np.testing.assert_array_equal(fitted.predict(queries), plain.predict(queries))
    part = model(5, rounds=0.25, chooser="equal", random_state=0).fit(X, y)
    some = KNeighborsClassifier(5).fit(X[part.prototypes_], y[part.prototypes_])
    assert len(part.prototypes_) == 30
    several = model((3, 5), rounds=0.25, chooser="equal", random_state=0).fit(X, y)
    np.testing.assert_array_equal(several.prototypes_, part.prototypes_)  # random ones, the same for each k
    np.testing.assert_array_equal(part.predict(queries), some.predict(queries))


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize(("kernel", "width"), [("knn", "adaptive"), ("gaussian", "adaptive"), ("gaussian", "sharp")])
def test_the_vote_is_the_literal_sum_over_the_nearest_prototypes(model, kernel, width, data):
    X, y, queries, _ = data
    fitted = model(4, kernel=kernel, width=width, rounds=0.4, random_state=0).fit(X, y)
    vectors, coefficients = X[fitted.prototypes_], fitted.coefficients_[0]
    labels = class_vectors(fitted.labels_, 3)
    expected = np.zeros((len(queries), 3))
    for q, x in enumerate(queries):
        distance = np.linalg.norm(vectors - x, axis=1)
        near = np.argsort(distance)[:4]
        sigma = distance[near[-1]] * (np.sqrt(2) if width == "adaptive" else 1 / np.sqrt(2))
        for j in near:
            strength = 1.0 if kernel == "knn" else np.exp(-(distance[j] ** 2) / (2 * sigma**2))
            expected[q] += np.broadcast_to(coefficients[j], 3) * strength * labels[j]
    np.testing.assert_allclose(fitted.decision_function(queries), expected / fitted.unit_, rtol=1e-10)


def test_a_typical_width_is_that_of_the_farthest_neighbours(data):
    X, y, queries, _ = data
    typical = MulticlassLeveragedNeighbors(4, kernel="gaussian", width="typical", rounds=0.4, folds=None).fit(X, y)
    distances = np.sort(np.linalg.norm(X[:, None] - X, axis=2), axis=1)[:, 4]
    assert typical.widths_ == [pytest.approx(np.sqrt(np.mean(distances**2)))]
    given = MulticlassLeveragedNeighbors(4, kernel="gaussian", width=typical.widths_[0], rounds=0.4, folds=None)
    np.testing.assert_array_equal(given.fit(X, y).decision_function(queries), typical.decision_function(queries))


@pytest.mark.parametrize("model", BOTH)
def test_few_prototypes_are_enough_and_they_are_training_images(model, data):
    X, y, queries, truth = data
    fitted = model(5, rounds=0.2, random_state=0).fit(X, y)
    assert len(fitted.prototypes_) <= 0.2 * len(X) * (1 if model is MulticlassLeveragedNeighbors else 3)
    np.testing.assert_array_equal(fitted.vectors_, X[fitted.prototypes_])
    assert (
        np.mean(fitted.predict(queries) == truth)
        > np.mean(KNeighborsClassifier(5).fit(X, y).predict(queries) == truth) - 0.02
    )


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("k", [5, (3, 5)])
def test_a_share_of_few_images_keeps_so_many_per_class_at_the_least(model, k, data):
    X, y, _, _ = data
    kept = [len(model(k, rounds=0.1, least=n, chooser="equal").fit(X, y).prototypes_) for n in (0, 3, 10, 100)]
    assert kept == [12, 12, 30, 120]
    assert len(model(k, rounds=7, least=10, chooser="equal").fit(X, y).prototypes_) == 7


@pytest.mark.parametrize("model", BOTH)
def test_noisy_labels_are_not_kept(model, data):
    X, y, _, _ = data
    wrong = np.arange(0, 120, 12)
    noisy = y.copy()
    noisy[wrong] = np.where(y[wrong] == "a", "b", "a")
    weight = np.zeros(120)
    fitted = model(7, rounds=0.25, random_state=0).fit(X, noisy)
    own = fitted.labels_ if fitted.coefficients_.shape[2] > 1 else 0
    weight[fitted.prototypes_] = fitted.coefficients_[0][np.arange(len(fitted.prototypes_)), own]
    assert weight[wrong].mean() < 0.5 * np.delete(weight, wrong).mean()


@pytest.mark.parametrize("model", BOTH)
def test_several_numbers_of_neighbours_add_their_scores(model, data):
    X, y, queries, _ = data
    together = model((3, 9), rounds=1.0, random_state=0).fit(X, y)
    alone = [model(k, rounds=1.0, random_state=0).fit(X, y) for k in (3, 9)]
    expected = sum(one.decision_function(queries) * one.unit_ for one in alone)
    np.testing.assert_allclose(together.decision_function(queries) * together.unit_, expected, rtol=1e-10)
    few = model((3, 9), rounds=0.2, random_state=0).fit(X, y)
    weights = np.zeros(len(X))
    weights[together.prototypes_] = together.own_coefficients()
    assert len(few.prototypes_) == 24 and weights[few.prototypes_].min() >= np.sort(weights)[-24]


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("kernel", ["knn", "similarity"])
def test_rows_of_similarities_serve_like_vectors(model, kernel, data):
    X, y, queries, truth = data
    X, queries = (np.concatenate([Z / 3, np.ones((len(Z), 1))], axis=1) for Z in (X, queries))
    similarity = InnerProductKernel().fit(X)
    fitted = model(5, metric="similarity", kernel=kernel, rounds=0.5, random_state=0)
    fitted.fit(similarity.transform(X), y)
    assert np.mean(fitted.predict(similarity.transform(queries)) == truth) > 0.85
    # columns of images that were not kept are not looked at
    rows = similarity.transform(queries)
    rows[:, np.setdiff1d(np.arange(len(X)), fitted.prototypes_)] = 1e6
    np.testing.assert_array_equal(fitted.predict(rows), fitted.predict(similarity.transform(queries)))


def make_bags(n, seed):
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 2
    return [rng.normal(size=(25, 3)) + np.array([2.0 * code, 0, 0]) for code in codes], np.array(list("ab"))[codes]


STATISTICS = UniversalStatistics(UniversalMixture(4, random_state=0))
OURS = {
    "ppk": [STATISTICS, MAPAdaptation(), MixtureKernel("ppk")],
    "klk": [STATISTICS, MAPAdaptation(), MixtureKernel("klk")],
    "fisher": [STATISTICS, FisherVector(), Normalizer(), InnerProductKernel()],
    "pyramid match": [PyramidMatchKernel(n_levels=3, random_state=0)],
}


@pytest.mark.parametrize("name", sorted(OURS))
def test_any_kernel_of_ours_finds_the_neighbours_and_weighs_their_votes(name):
    bags, labels = make_bags(40, 0)
    vote = MulticlassLeveragedNeighbors(5, metric="similarity", kernel="similarity", rounds=0.5, random_state=0)
    model = make_pipeline(*OURS[name], vote).fit(bags, labels)
    queries, truth = make_bags(30, 1)
    assert np.mean(model.predict(queries) == truth) > 0.9 and len(model[-1].prototypes_) == 20
    voters = deciding_images(model, queries[:2], np.arange(40))
    assert voters[0][0]["label"] == labels[int(voters[0][0]["image"])] == model.predict(queries[:1])[0]


@pytest.mark.parametrize("metric", ["cosine", "canberra", "chi2", lambda a, b: float(np.abs(a - b).max())])
def test_any_metric_finds_the_neighbours(metric):
    rng = np.random.default_rng(0)
    y = np.array(list("ab"))[np.arange(80) % 2]
    X = np.where((y == "a")[:, None], rng.dirichlet([4, 2, 1, 1], 80), rng.dirichlet([1, 1, 2, 4], 80))
    fitted = UniversalNearestNeighbors(5, metric=metric, rounds=0.3, random_state=0).fit(X[:50], y[:50])
    assert np.mean(fitted.predict(X[50:]) == y[50:]) > 0.85


def exponential_slope(x):
    return -np.exp(-x)


@pytest.mark.parametrize("model", BOTH)
def test_a_loss_given_by_its_derivative_is_that_loss(model, data):
    X, y, queries, _ = data
    known, given = (
        model(5, kernel="gaussian", loss=loss, rounds=0.3, folds=None).fit(X, y)
        for loss in ("exponential", exponential_slope)
    )
    np.testing.assert_array_equal(given.prototypes_, known.prototypes_)
    np.testing.assert_allclose(given.decision_function(queries), known.decision_function(queries), rtol=1e-5)


@pytest.mark.parametrize("search", [NearestNeighbors(algorithm="kd_tree"), MetricSearch("euclidean")])
def test_any_search_gives_the_same_answers(search, data, tmp_path):
    X, y, queries, _ = data
    ours, theirs = (
        MulticlassLeveragedNeighbors(5, rounds=0.5, search=s, random_state=0).fit(X, y) for s in (None, search)
    )
    np.testing.assert_allclose(theirs.decision_function(queries), ours.decision_function(queries), rtol=1e-9)
    if isinstance(search, NearestNeighbors):
        from patchbag.storage.models import load, save

        loaded = load(save(theirs, tmp_path / "m.patchbag"))
        np.testing.assert_array_equal(loaded.predict_proba(queries), theirs.predict_proba(queries))


@pytest.mark.parametrize(("index", "settings"), [("Flat", None), ("IVF4,Flat", {"nprobe": 4}), ("HNSW16", None)])
def test_faiss_finds_the_same_neighbours(index, settings, data, tmp_path):
    pytest.importorskip("faiss")
    from patchbag.storage.models import load, save

    X, y, queries, _ = data
    search = FaissSearch(index, settings=settings)
    ours, theirs = (
        UniversalNearestNeighbors(5, rounds=0.5, search=s, random_state=0).fit(X, y) for s in (None, search)
    )
    np.testing.assert_allclose(theirs.decision_function(queries), ours.decision_function(queries), rtol=1e-9)
    loaded = load(save(theirs, tmp_path / "m.patchbag"))
    np.testing.assert_array_equal(loaded.predict_proba(queries), theirs.predict_proba(queries))
    with pytest.raises(ValueError, match="look at more lists"):
        FaissSearch("IVF4,Flat").fit(X).kneighbors(queries, 60)
    with pytest.raises(ValueError, match="metric"):
        FaissSearch(metric="cosine").fit(X)


class CountedSearch(NearestNeighbors):
    """A search that counts how often it is built."""

    built = 0

    def fit(self, X, y=None):
        CountedSearch.built += 1
        return super().fit(X, y)


def test_the_search_is_built_once_and_asked_many_times(data):
    X, y, queries, _ = data
    fitted = MulticlassLeveragedNeighbors(5, rounds=0.5, search=CountedSearch(), folds=None).fit(X, y)
    before = CountedSearch.built
    for _ in range(3):
        fitted.predict(queries)
    assert CountedSearch.built == before


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_distances_of_all_pairs_are_those_of_the_parts(metric, data, monkeypatch):
    X, y, queries, _ = data
    model = MulticlassLeveragedNeighbors((3, 5), metric=metric, kernel="gaussian", random_state=0)
    found = [model.fit(X, y).predict_proba(queries)]
    monkeypatch.setattr("patchbag.classifiers.prototypes.search.PAIRS", 0)
    np.testing.assert_allclose(model.fit(X, y).predict_proba(queries), found[0], rtol=1e-9)


@pytest.mark.parametrize("model", BOTH)
def test_without_folds_only_the_probabilities_are_others(model, data):
    X, y, queries, _ = data
    plain, calibrated = (model(5, rounds=0.3, folds=folds, random_state=0).fit(X, y) for folds in (None, 3))
    np.testing.assert_array_equal(plain.prototypes_, calibrated.prototypes_)
    np.testing.assert_array_equal(plain.rank(queries, 3), calibrated.rank(queries, 3))
    assert plain.left_out_ is None and plain.temperature_ == 1
    with pytest.raises(ValueError, match="folds must be a number"):
        model(5, folds=None).fit(X, y)


def test_neighbours_may_be_those_of_a_divergence():
    rng = np.random.default_rng(0)
    y = np.array(list("ab"))[np.arange(80) % 2]
    X = np.where((y == "a")[:, None], rng.dirichlet([4, 2, 1, 1], 80), rng.dirichlet([1, 1, 2, 4], 80))
    model = MulticlassLeveragedNeighbors(5, search=BregmanNeighbors(divergence="kl"), rounds=0.3, random_state=0)
    fitted = model.fit(X[:50], y[:50])
    assert np.mean(fitted.predict(X[50:]) == y[50:]) > 0.85 and len(fitted.prototypes_) == 15


def test_the_intersection_kernel_is_one_minus_half_of_manhattans_distance():
    rng = np.random.default_rng(0)
    a, b = rng.dirichlet(np.ones(6), 4), rng.dirichlet(np.ones(6), 9)
    distances, near = MetricSearch("manhattan").fit(b).kneighbors(a, 3)
    literal = np.array([[np.minimum(x, b[j]).sum() for j in row] for x, row in zip(a, near)])
    np.testing.assert_allclose(kernel_values(distances, "intersection"), literal, rtol=1e-12)


def test_training_images_are_not_their_own_neighbours_even_among_copies():
    X = np.array([[0.0], [0.0], [0.0], [0.0], [5.0]])
    _, near = nearest_others(X, 2, "euclidean", None)
    assert near.shape == (5, 2) and not (near == np.arange(5)[:, None]).any()


@pytest.mark.parametrize("model", BOTH)
def test_probabilities_are_calibrated_and_ranks_follow_the_scores(model):
    fitted = model(7, random_state=0).fit(*blobs(150, 5, spread=1.4))
    hard, answers = blobs(600, 6, spread=1.4)
    p = fitted.predict_proba(hard)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    right = fitted.classes_[p.argmax(axis=1)] == answers
    assert abs(p.max(axis=1).mean() - right.mean()) < 0.08
    np.testing.assert_array_equal(fitted.rank(hard, 3)[:, 0], fitted.predict(hard))
    second = (fitted.rank(hard, 2) == answers[:, None]).any(axis=1).mean()
    assert right.mean() < second < 1.0
    assert (
        0.84 < np.mean(fitted.predict_set(hard, 0.9)[np.arange(600), np.searchsorted(fitted.classes_, answers)]) < 0.97
    )


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("kernel", ["knn", "gaussian"])
def test_a_point_far_from_all_others_is_strange_even_where_its_neighbours_agree(model, kernel, data):
    _, _, X, y = data
    fitted = model(5, kernel=kernel, rounds=0.5, random_state=0).fit(X, y)
    far = np.array([[40.0, -30.0]])
    assert fitted.predict_proba(far).max() > 0.9
    assert fitted.typicality(far)[0] < 0.05
    assert 0.02 < np.mean(fitted.typicality(blobs(2000, 2)[0]) <= 0.05) < 0.1


@pytest.mark.parametrize("model", BOTH)
def test_two_images_of_two_classes_are_enough(model):
    fitted = model(3).fit([[0.0], [1.0]], ["a", "b"])
    assert fitted.predict([[0.1], [0.8]]).tolist()[0] in ("a", "b")
    assert np.isfinite(fitted.predict_proba([[0.1]])).all()


@pytest.mark.parametrize("model", BOTH)
def test_a_class_of_one_image_and_constant_vectors_do_no_harm(model, data):
    X, y, queries, _ = data
    fitted = model(5, random_state=0).fit(np.vstack([X, [[9.0, 9.0]]]), np.append(y, "d"))
    assert np.isfinite(fitted.predict_proba(queries)).all()
    flat = model(3, kernel="gaussian", random_state=0).fit(np.zeros((9, 2)), list("abcabcabc"))
    assert np.isfinite(flat.decision_function(np.zeros((2, 2)))).all()


def test_what_does_not_go_together_is_an_error(data):
    X, y, _, _ = data
    with pytest.raises(ValueError, match="does not go with"):
        MulticlassLeveragedNeighbors(metric="similarity", kernel="gaussian").fit(X @ X.T, y)
    with pytest.raises(ValueError, match='is made from metric="manhattan"'):
        MulticlassLeveragedNeighbors(kernel="intersection").fit(X, y)
    with pytest.raises(ValueError, match="square matrix"):
        MulticlassLeveragedNeighbors(metric="similarity").fit(X, y)
    with pytest.raises(ValueError, match="leave out search"):
        MulticlassLeveragedNeighbors(metric="similarity", search=MetricSearch()).fit(X @ X.T, y)
    with pytest.raises(ValueError, match="'metric' parameter of MetricSearch"):
        MulticlassLeveragedNeighbors(search=MetricSearch("cosine")).fit(X, y)
    with pytest.raises(ValueError, match="'smoothing' parameter"):  # what all neighbours agree on would weigh nothing
        MulticlassLeveragedNeighbors(smoothing=0.0).fit(X, y)
    with pytest.raises(ValueError, match="top must be at least 1"):
        MulticlassLeveragedNeighbors(folds=None, rounds=0.5).fit(X, y).rank(X, 0)


@pytest.mark.parametrize("model", BOTH)
def test_rows_that_are_no_histograms_are_named_where_histograms_are_compared(model):
    rng = np.random.default_rng(0)
    X, y = rng.dirichlet(np.ones(4), 30), list("ab" * 15)
    scaled, negative = X * np.where(np.arange(30) == 3, 5.0, 1.0)[:, None], X - (np.arange(30) == 3)[:, None]
    fitted = model(3, metric="manhattan", kernel="intersection", rounds=0.5, folds=None).fit(X.astype(np.float32), y)
    for wrong in (scaled, negative):
        with pytest.raises(
            ValueError, match=r"at least 0 that sum to 1: row 3 has a smallest entry of .* and a sum of"
        ):
            clone(fitted).fit(wrong, y)
        with pytest.raises(ValueError, match="row 3"):
            fitted.predict(wrong)
    for metric in ("chi2", "intersection"):
        histograms = model(3, metric=metric, rounds=0.5, folds=None).fit(scaled, y)
        with pytest.raises(ValueError, match="row 3"):
            histograms.predict(negative)


def test_models_are_stored_without_pickle(data, tmp_path):
    from sklearn.pipeline import Pipeline

    from patchbag.storage.models import load, save

    X, y, queries, _ = data
    model = Pipeline(
        [("classifier", MulticlassLeveragedNeighbors((3, 5), kernel="gaussian", random_state=0).fit(X, y))]
    )
    save(model, tmp_path / "m.patchbag")
    np.testing.assert_array_equal(load(tmp_path / "m.patchbag").predict(queries), model.predict(queries))


@pytest.mark.parametrize("model", BOTH)
def test_votes_add_up_to_the_score_of_the_class_predicted_and_have_names(model, data):
    X, y, queries, _ = data
    fitted = model((3, 5), rounds=0.5, kernel="gaussian", random_state=0).fit(X, y)
    votes = fitted.votes(queries)
    np.testing.assert_allclose(votes.sum(axis=1), fitted.decision_function(queries).max(axis=1), rtol=1e-9)
    names = [f"{i}.png" for i in range(len(X))]
    voters = deciding_images(fitted, queries[:2], names, top=3)
    strongest = np.argmax(np.abs(votes[0]))
    assert voters[0][0]["image"] == names[fitted.prototypes_[strongest]]
    assert voters[0][0]["vote"] == pytest.approx(votes[0, strongest] / np.abs(votes[0]).sum()) and len(voters[1]) == 3
    kept = kept_images(fitted, names, per_class=2)
    assert [k["label"] for k in kept] == ["a", "a", "b", "b", "c", "c"] and kept[0]["weight"] >= kept[1]["weight"]


def test_a_categorizer_names_the_images_that_vote_and_those_that_decided(picture_folder):
    from patchbag import open_collection

    images = open_collection(picture_folder).labelled()
    paths, labels = [str(p) for p in images.paths], images.labels.astype(str)
    recipe = {"recipe__projection__n_components": 4, "random_state": 0}
    model = Categorizer("mlnn-gist").set_params(**recipe).fit(paths, labels)
    kept = kept_images(model, paths, per_class=3)
    known = dict(zip(paths, labels))
    assert {k["label"] for k in kept} == set(labels) and all(known[k["image"]] == k["label"] for k in kept)
    (voters,) = deciding_images(model, paths[:1], paths)
    assert sum(abs(v["vote"]) for v in voters) <= 1 + 1e-9 and all(known[v["image"]] == v["label"] for v in voters)
    with pytest.raises(TypeError, match="not in LogisticRegression"):
        kept_images(make_pipeline(LogisticRegression()), paths)


@pytest.mark.parametrize("model", BOTH)
def test_three_images_per_class_vote_alike_where_so_many_are_to_be_kept(model):
    X, y = blobs(9, 0)
    scarce, plain = model(5, least=25, rounds=0.5, random_state=0), model(5, rounds=0.5, random_state=0)
    assert len(scarce.fit(X, y).prototypes_) == 9 and set(np.unique(np.abs(scarce.coefficients_))) == {1.0}
    assert len(plain.fit(X, y).prototypes_) < 9
    knn = model(5, rounds=1.0, chooser="equal", random_state=0).fit(X, y)
    queries, _ = blobs(50, 1)
    np.testing.assert_allclose(scarce.predict_proba(queries), knn.predict_proba(queries))
    X, y = blobs(33, 0)
    assert len(np.unique(scarce.fit(X, y).coefficients_)) > 1


@pytest.mark.parametrize("model", BOTH)
def test_of_few_images_the_left_out_ones_say_whether_all_vote_alike(model, monkeypatch):
    def wide(seed, per_class):  # 200 dimensions of noise, in which boosting finds what is not there
        rng, y = np.random.default_rng(seed), np.tile(np.arange(4), per_class)
        return np.eye(200)[y] + 0.25 * rng.normal(size=(len(y), 200)), y

    right, alike = {}, []
    for few in (0, leveraged.FEW):
        monkeypatch.setattr(leveraged, "FEW", few)
        fitted = [model((5, 10), least=25, rounds=0.5, random_state=0).fit(*wide(seed, 5)) for seed in range(6)]
        right[few] = np.mean([one.score(*wide(100 + seed, 50)) for seed, one in enumerate(fitted)])
        alike.append(sum(len(np.unique(np.abs(one.coefficients_))) == 1 for one in fitted))
    assert right[leveraged.FEW] > right[0] + 0.01 and alike[0] == 0 < alike[1]


def test_scores_are_in_units_of_all_that_could_be_said(data):
    X, y, queries, _ = data
    fitted = MulticlassLeveragedNeighbors((3, 200), rounds=0.3, random_state=0).fit(X, y)
    panel, literal = fitted._panel(), 0.0
    for k, coefficients in zip(fitted.neighbors_, fitted.coefficients_):
        kept = coefficients[coefficients.any(axis=1)]
        literal += min(k, len(kept)) * np.abs(kept).mean()
    assert panel.mass == pytest.approx(literal)
    # coefficients of another scale, as folds have them, change nothing
    louder = Panel(
        X, np.eye(3)[[0] * len(X)], [Voter(5, np.full((len(X), 1), 7.0), None)], fitted._kernel, "euclidean", None
    )
    plain = Panel(X, np.eye(3)[[0] * len(X)], [Voter(5, np.ones((len(X), 1)), None)], fitted._kernel, "euclidean", None)
    np.testing.assert_allclose(louder.scores(queries) / louder.mass, plain.scores(queries) / plain.mass)


@pytest.mark.parametrize("model", BOTH)
def test_votes_that_nothing_leveraged_vary_as_those_of_images_left_out(model, monkeypatch):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(60), 2)
    rows = rng.normal(size=(60, 60))[codes] + 1.5 * rng.normal(size=(120, 60))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    seen = []
    monkeypatch.setattr(leveraged, "fit_temperature", lambda *given: seen.append(given[0]) or fit_temperature(*given))
    options = {"kernel": "similarity", "metric": "similarity", "rounds": 0.5, "least": 25}
    fitted = model((5, 10, 20, 40), random_state=0, **options).fit(rows @ rows.T, codes)
    others = codes[:, None] != np.arange(60)  # every image votes for its own class
    assert fitted._class_scores(rows @ rows.T)[others].std() == pytest.approx(np.nanstd(seen[0][others]))


def test_a_model_without_ties_looks_at_the_votes(data):
    X, y, queries, _ = data
    fitted = MulticlassLeveragedNeighbors(5, rounds=0.5, random_state=0).fit(X, y)
    ties = fitted._strangeness(queries)
    fitted.ties_ = None  # as in files of before
    votes = fitted._strangeness(queries)
    np.testing.assert_array_equal(votes[1], ties[1])
    np.testing.assert_array_equal(votes[0], energy(fitted.temperature_ * fitted._class_scores(queries)))
