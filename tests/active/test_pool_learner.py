# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from patchbag.active.pool_learner import PoolLearner
from patchbag.active.rare import LabelDistances, Turns
from patchbag.active.representatives import GrowingClusters, group_sums, representative_utilities
from patchbag.active.stopping import judge
from patchbag.classifiers.beliefs import RIDGE, PoolBeliefs, diffused_weights, grown_factor
from patchbag.similarity.graph.choice import directions, one_hot, soften
from patchbag.similarity.graph.image_graph import ImageGraph, unit_rows


def blobs(sizes=(60, 60, 60, 60), dimension=20, spread=0.16, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return np.abs(np.eye(dimension)[y] + spread * rng.normal(size=(len(y), dimension))), y


X, Y = blobs()
GRAPH = ImageGraph.from_vectors(X)
NAMES = np.array(["ant", "bee", "cow", "dog"])[Y]


def taught(images, graph=GRAPH, codes=Y):
    beliefs = PoolBeliefs(graph, np.random.RandomState(0))
    for image in images:
        beliefs.learn(image, codes[image])
    return beliefs


def some(per_class, codes=Y):
    return np.concatenate([np.flatnonzero(codes == c)[:per_class] for c in range(4)])


# --- beliefs ---------------------------------------------------------------------------------------------------------


def literal_classifier(beliefs, images, codes, trust):
    """W of the module's text, with all images in one sum."""
    vectors = beliefs.graph.vectors.astype(float)
    soft = soften(directions(beliefs.basis.features @ diffused_weights(beliefs.basis, images, codes)), 10.0)
    targets, weights = soft - 1 / soft.shape[1], np.full(len(vectors), trust)
    targets[images], weights[images] = one_hot(codes) - 1 / soft.shape[1], 1.0
    moment = (vectors * weights[:, None]).T @ vectors + RIDGE * np.eye(vectors.shape[1])
    return np.linalg.solve(moment, (vectors * weights[:, None]).T @ targets)


@pytest.mark.parametrize("trust", [0.1, 0.001])
def test_the_classifier_is_the_ridge_regression_of_the_text(trust):
    images = some(3)
    beliefs = taught(images)
    beliefs.trust = trust
    np.testing.assert_allclose(
        beliefs.classifier(), literal_classifier(beliefs, images, Y[images], trust), atol=2e-3, rtol=2e-3
    )


def test_a_factor_that_grows_is_the_one_of_the_whole():
    rows = np.random.default_rng(0).normal(size=(12, 20))
    whole = rows @ rows.T
    factor = np.empty((0, 0))
    for n in (1, 5, 6, 12):
        factor = grown_factor(factor, whole[len(factor) : n, :n])
    np.testing.assert_allclose(factor, np.linalg.cholesky(whole), atol=1e-10)


def test_labels_one_at_a_time_teach_what_they_teach_together():
    images = some(3)
    together, alone = taught(images), taught(images[:4])
    for image in images[4:]:
        alone.classifier()
        alone.remaining_variance()
        alone.learn(image, Y[image])
    np.testing.assert_allclose(alone.classifier(), together.classifier(), atol=1e-4)
    np.testing.assert_allclose(alone.remaining_variance(), together.remaining_variance(), atol=1e-5)


def test_left_out_scores_are_those_of_a_classifier_without_the_labels():
    images = some(4)
    beliefs = taught(images)
    codes, scores = beliefs.left_out_scores()
    assert len(codes) == 16
    order = np.argsort(Y[images], kind="stable")
    parts = np.empty(16, int)
    parts[order] = np.arange(16) % 8
    outside = images[parts == 0]
    kept = images[parts != 0]
    expected = GRAPH.vectors[outside] @ literal_classifier(beliefs, kept, Y[kept], 0.1)
    np.testing.assert_allclose(scores[0.1][: len(outside)], expected, atol=2e-3)
    np.testing.assert_array_equal(codes[: len(outside)], Y[outside])


def test_images_without_a_label_teach():
    hard, codes = blobs(spread=0.33, seed=3)
    beliefs = taught(some(1, codes), ImageGraph.from_vectors(hard), codes)
    right = (beliefs.scores().argmax(axis=1) == codes).mean()
    rows = beliefs.graph.vectors
    nearest = codes[some(1, codes)][(rows @ rows[some(1, codes)].T).argmax(axis=1)]
    assert right > (nearest == codes).mean() + 0.05


def test_where_clusters_are_no_classes_the_soft_labels_lose_their_weight():
    rng = np.random.default_rng(1)
    cluster = np.arange(400) % 8
    vectors = np.hstack([2 * np.eye(8)[cluster], 1.5 * rng.normal(size=(400, 2))])
    halves = (vectors[:, 8] > 0).astype(int)
    graph = ImageGraph.from_vectors(vectors, power=1.0)
    shown = rng.permutation(400)[:80]
    beliefs = taught(shown, graph, halves)
    right = (beliefs.scores().argmax(axis=1) == halves).mean()
    assert beliefs.trust < 0.1 and right > 0.85
    assert taught(shown, graph, cluster).trust == 0.1


def test_the_variance_that_labels_leave_is_that_of_the_kernel():
    images = some(2)
    beliefs = taught(images)
    features, own = beliefs.basis.features, beliefs.basis.own
    kernel = features @ features.T
    known = kernel[np.ix_(images, images)] + np.diag(own[images] + 0.01)
    left = np.diagonal(kernel) - np.einsum("ij,ij->j", kernel[images], np.linalg.solve(known, kernel[images]))
    np.testing.assert_allclose(beliefs.remaining_variance(), left / (1 - own), atol=1e-4)


# --- which image next ------------------------------------------------------------------------------------------------


def test_sums_of_groups_some_of_them_empty():
    rows, of = np.arange(12.0).reshape(6, 2), np.array([2, 0, 2, 0, 0, 4])
    expected = [rows[of == k].sum(axis=0) for k in range(5)]
    np.testing.assert_allclose(group_sums(rows, of, 5), expected)


def test_clusters_grow_to_the_groups_of_the_pool():
    clusters = GrowingClusters(GRAPH.eigenvectors, np.random.RandomState(0))
    for n in (1, 2, 3, 4):
        clusters.grow(n)
        assert clusters.of.max() < n
    assert all(len(np.unique(clusters.of[c == Y])) == 1 for c in range(4))
    clusters.grow(2)  # there are more already
    assert len(np.unique(clusters.of)) == 4


def test_the_image_asked_for_is_the_most_central_one_of_the_cluster_with_the_most_doubt():
    rng = np.random.default_rng(0)
    features = rng.random((30, 4))
    clusters, doubt = np.arange(30) % 3, rng.random(30)
    doubt[clusters == 1] += 1
    free = np.ones(30, bool)
    free[4] = False
    value = representative_utilities(features, clusters, doubt, np.array([0]), free)
    assert np.isnan(value[clusters == 0]).all() and np.isnan(value[4])
    members = np.flatnonzero((clusters == 1) & free)
    inside = np.flatnonzero(clusters == 1)
    central = features[members] @ (features[inside] * doubt[inside, None]).sum(axis=0)
    assert np.nanargmax(value) == members[np.argmax(central)]
    assert np.nanmax(value) == pytest.approx(doubt[inside].sum())
    covered = representative_utilities(features, clusters, doubt, np.array([0, 1, 2]), free)
    assert np.isfinite(covered).sum() == 29  # all clusters have a label: all may be asked for


def test_as_many_questions_as_classes_find_them_all():
    for seed in range(5):
        learner = PoolLearner(random_state=seed).fit(GRAPH)
        for _ in range(4):
            learner.teach(image := learner.query(), NAMES[image])
        assert set(learner.classes_) == set(NAMES)
        assert (learner.predict() == NAMES).mean() > 0.97


def test_rare_classes_are_found_long_before_random_questions_find_them():
    rare, codes = blobs((300, 300, 300, 5, 5, 5), seed=2)
    graph = ImageGraph.from_vectors(rare)

    def needed(rule, seed):
        learner = PoolLearner(rule, random_state=seed).fit(graph)
        while len(learner.classes_) < 6:
            learner.teach(image := learner.query(), codes[image])
        return learner.n_labels_

    asked, random = ([needed(rule, seed) for seed in range(4)] for rule in ("representative", "random"))
    assert max(asked) < 14 and np.mean(asked) < np.mean(random) / 10


def test_the_turn_is_that_of_the_kind_of_question_that_has_failed_less():
    turns = Turns()
    told = []
    found = [True, True, False, True, False, False, False, False, True, False]
    for image, new in enumerate(found):
        told.append(turns.unlike)
        turns.ask(image, turns.unlike)
        turns.answer(image, new)
    assert told == [False, False, False, True, True, False, True, False, True, True]
    turns.answer(50, True)  # nobody asked: as a representative
    assert not turns.unlike and not turns.expecting([False] * 9).unlike
    turns.answer(51, False)
    turns.answer(52, False)
    assert [turns.expecting(asked).unlike for asked in ([], [True], [True, False])] == [True, False, True]


def test_the_image_most_unlike_the_labelled_ones_is_that_of_the_text():
    images = np.concatenate([some(2)[:3], np.flatnonzero(Y == 0)[2:4]])  # the last two find no class
    learner = PoolLearner(random_state=0).fit(GRAPH).teach(images[:4], NAMES[images[:4]])
    learner.query()
    learner.teach(images[4:], NAMES[images[4:]])
    (image,), (value,) = learner.query(return_utilities=True)
    basis = learner.beliefs_.basis
    kernel = basis.features @ basis.features.T
    known = kernel[np.ix_(images, images)] + np.diag(basis.own[images] + 0.01)
    left = np.diagonal(kernel) - np.einsum("ij,ij->j", kernel[images], np.linalg.solve(known, kernel[images]))
    expected = left + 1 - (GRAPH.vectors @ GRAPH.vectors[images].T).max(axis=1)
    free = learner.available_
    np.testing.assert_allclose(value[free], expected[free], atol=1e-4)
    assert np.isnan(value[images]).all() and image == np.nanargmax(value)


def test_distances_to_the_nearest_label_follow_the_labels(monkeypatch):
    monkeypatch.setattr("patchbag.active.rare.BLOCK", 2)
    distances, images = LabelDistances(GRAPH.vectors), some(3)
    for n in (1, 6, 12):
        cosines = GRAPH.vectors @ GRAPH.vectors[images[:n]].T
        np.testing.assert_allclose(distances.to(images[:n]), 1 - cosines.max(axis=1), atol=1e-6)


def test_where_all_classes_are_known_nobody_looks_for_more():
    images = some(3)
    known, unknown = (PoolLearner(classes=names, random_state=0) for names in (sorted(set(NAMES)), None))
    asked = [learner.fit(GRAPH).teach(images, NAMES[images]).query()[0] for learner in (known, unknown)]
    clusters = [known.clusters_[image] for image in (asked[0], *images)]
    assert clusters[0] not in clusters[1:] and asked[0] != asked[1]


def test_a_batch_covers_several_clusters():
    images, values = PoolLearner(random_state=0).fit(GRAPH).query(4, return_utilities=True)
    assert len(set(Y[images])) == 4 and values.shape == (4, 240)
    np.testing.assert_array_equal(np.nanargmax(values, axis=1), images)
    learner = PoolLearner(random_state=0).fit(GRAPH).teach([0, 1], NAMES[:2])
    before = learner.error(), learner.novelty()
    learner.query(40)  # what was only asked for changes nothing
    assert learner.error() == before[0] and np.array_equal(learner.novelty(), before[1])
    learner = PoolLearner(random_state=0).fit(GRAPH).teach(some(3), NAMES[some(3)])
    images, values = learner.query(4, return_utilities=True)
    assert len(set(images)) == 4 and images[0] == learner.query()[0]
    among = PoolLearner(random_state=0).fit(GRAPH).query(2, candidates=[5, 6, 7])
    assert set(among) < {5, 6, 7}


# --- the learner -----------------------------------------------------------------------------------------------------


def test_probabilities_of_the_pool_and_of_new_images():
    labels = np.full(240, None, dtype=object)
    labels[some(3)] = NAMES[some(3)]
    learner = PoolLearner(missing_label=None, random_state=0).fit(X, labels)
    p = learner.predict_proba()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    known = some(3)
    assert (p[known].max(axis=1) == 1).all() and (learner.predict()[known] == NAMES[known]).all()
    new = np.abs(X + 0.01 * np.random.default_rng(5).normal(size=X.shape))
    assert (learner.predict(new) == NAMES).mean() > 0.97
    rest = np.setdiff1d(np.arange(240), known)
    np.testing.assert_allclose(learner.predict_proba(X)[rest], p[rest], atol=1e-4)


def test_classes_that_are_known_beforehand_have_columns_and_others_are_refused():
    learner = PoolLearner(classes=["wolf", "dog", "cow"], random_state=0).fit(GRAPH)
    learner.teach(np.flatnonzero(Y >= 2)[:12], NAMES[Y >= 2][:12])
    p = learner.predict_proba()
    assert learner.classes_ == ["wolf", "dog", "cow"] and p.shape == (240, 3) and (p[:, 0] == 0).all()
    assert set(learner.predict()) == {"dog", "cow"}
    with pytest.raises(ValueError, match="'ant' is not one of the classes"):
        learner.teach([int(np.flatnonzero(Y == 0)[0])], ["ant"])


def test_the_error_has_an_interval_that_shrinks():
    hard, codes = blobs((150,) * 4, spread=0.4, seed=4)
    learner = PoolLearner(random_state=0).fit(hard)
    assert np.isnan(learner.error().expected)
    widths, inside = [], 0
    for n in (20, 60, 120):
        while learner.n_labels_ < n:
            learner.teach(image := learner.query(), codes[image])
        left = np.setdiff1d(np.arange(600), list(learner.labels_))
        error = learner.error()
        assert 0 <= error.low <= error.expected <= error.high <= 1
        inside += error.low <= (learner.predict()[left] != codes[left]).mean() <= error.high
        widths.append(error.high - error.low)
    assert inside >= 2 and widths[2] < widths[0]
    assert "% wrong, between " in str(learner.stopping_hint().error)


def test_the_interval_of_the_error_has_room_for_chance():
    learner = PoolLearner("random", random_state=0).fit(GRAPH).teach(some(6), NAMES[some(6)])
    left = np.setdiff1d(np.arange(240), some(6))
    assert (learner.predict() == NAMES).all() and learner.error().low == 0 < learner.error().expected
    wrong = 1 - learner.predict_proba()[left].max(axis=1)
    chance = 1.645 * np.sqrt(np.sum(wrong * (1 - wrong))) / len(left)
    assert learner.error().expected == pytest.approx(wrong.mean())
    assert learner.error().high - wrong.mean() > chance > 0


def test_novelty_is_that_of_images_which_no_label_has_reached():
    learner = PoolLearner(random_state=0).fit(GRAPH)
    assert (learner.novelty() == 1).all()
    for _ in range(2):
        learner.teach(image := learner.query(), NAMES[image])
    new = learner.novelty()
    seen = np.isin(NAMES, learner.classes_)
    assert new[~seen].min() > new[seen].max() and (new[list(learner.labels_)] == 0).all()
    assert np.delete(new, list(learner.labels_)).mean() == pytest.approx(learner.unseen_share().expected)
    known = PoolLearner(classes=list(learner.classes_), random_state=0).fit(GRAPH)
    known.teach(list(learner.labels_), list(learner.labels_.values()))
    assert (known.novelty() == 0).all()  # there are no other classes


def test_the_error_holds_classes_that_nobody_has_named():
    """Two of four classes have labels: half of the answers are wrong, and as sure as the others."""
    first = some(6)[:12]
    learner = PoolLearner(random_state=0).fit(GRAPH).teach(first, NAMES[first])
    assert learner.error().high < 0.5  # of each class six labels: nothing speaks for more
    alone = PoolLearner(random_state=0).fit(GRAPH)
    for _ in range(2):
        alone.teach(image := alone.query(), NAMES[image])
    left = np.setdiff1d(np.arange(240), list(alone.labels_))
    error = alone.error()
    assert error.low < (alone.predict()[left] != NAMES[left]).mean() < error.high
    assert str(error).endswith("%: there may be classes that no answer has named")
    hint = judge([0.5] * 10, 10, 0.99, n_seen=4, n_left=9, error=error)
    assert (
        hint.reason == "predictions still change (agreement 0.500), and there may be classes that no answer has named"
    )
    known = PoolLearner(classes=np.unique(NAMES), random_state=0).fit(GRAPH).teach(some(6), NAMES[some(6)])
    assert "classes" not in str(known.error())


def test_one_class_and_no_label():
    learner = PoolLearner(random_state=0).fit(GRAPH)
    with pytest.raises(ValueError, match="no image has a label yet"):
        learner.predict()
    assert learner.unseen_share().expected == 1.0
    learner.teach([0], ["ant"])
    assert set(learner.predict()) == {"ant"} and not learner.stopping_hint().stop
    with pytest.raises(ValueError, match="already has the label 'ant'"):
        learner.teach([0], ["bee"])
    learner.skip(np.arange(1, 240))
    assert learner.stopping_hint().stop
    with pytest.raises(ValueError, match="between 1 and the 0 images left"):
        learner.query()


def test_it_is_an_estimator():
    assert clone(PoolLearner("margin")).rule == "margin"
    with pytest.raises(ValueError, match="'rule' parameter"):
        PoolLearner("best").fit(X)
    with pytest.raises(NotFittedError):
        PoolLearner().query()
    two = PoolLearner(random_state=0).fit(X[:2])
    assert len(two.query(2)) == 2


@pytest.mark.parametrize("rule", ["margin", "random", "representative"])
def test_runs_repeat(rule):
    def images():
        learner = PoolLearner(rule, random_state=7).fit(GRAPH)
        for _ in range(8):
            learner.teach(image := learner.query(), NAMES[image])
        return list(learner.labels_)

    assert images() == images()


def test_large_pools_are_taught_by_a_sample(monkeypatch):
    from patchbag.active import representatives
    from patchbag.classifiers import beliefs

    monkeypatch.setattr(beliefs, "TAUGHT", 100)
    monkeypatch.setattr(representatives, "SAMPLE", 80)
    learner = PoolLearner(random_state=0).fit(GRAPH)
    for _ in range(8):
        learner.teach(image := learner.query(), NAMES[image])
    assert (learner.predict() == NAMES).mean() > 0.95


def test_unit_rows_leave_zeros_alone():
    np.testing.assert_allclose(unit_rows(np.array([[0.0, 0.0], [3.0, 4.0]])), [[0, 0], [0.6, 0.8]])
