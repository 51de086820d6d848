# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from patchbag import Bags, Channels, GaussianProcessClassifier, LinearClassifier, MulticlassLeveragedNeighbors
from patchbag.classifiers import linear
from patchbag.classifiers.confidence.class_means import mean_norms, nearest_mean, scatter
from patchbag.classifiers.confidence.left_out import LeftOut, energy
from patchbag.classifiers.confidence.temperature import left_out_folds
from patchbag.classifiers.confidence.usual_bags import UsualBags


def points(per_class, seed=0, n_classes=5, spread=0.5):
    rng = np.random.default_rng(seed)
    y = np.tile(np.arange(n_classes), per_class)
    return unit(np.eye(24)[y] + spread * rng.normal(size=(len(y), 24)) / 2), y


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def fitted(kind, x, y):
    if kind == "gp":
        return GaussianProcessClassifier(random_state=0).fit(x @ x.T, y), lambda new: new @ x.T
    return LinearClassifier("svm" if kind == "svm" else "least-squares", random_state=0).fit(x, y), lambda new: new


def test_the_threshold_is_the_quantile_of_conformal_prediction():
    own = np.arange(1, 20) / 20
    left_out = LeftOut(own, np.zeros((1, 19)), np.zeros(19))
    assert left_out.threshold(0.9) == own[1]  # floor(20 · 0.1) = 2: the second smallest
    assert left_out.threshold(0.75) == own[4]
    assert left_out.threshold(0.96) == 0.0  # so few images cannot promise it


def test_typicality_is_the_share_of_images_that_are_as_strange():
    scores, targets = np.array([[3.0, 0.0], [0.0, 2.0], [1.0, 0.0], [np.nan, 1.0]]), np.array([0, 1, 0, 0])
    left_out = LeftOut.from_scores(scores, targets, 2.0)
    assert len(left_out.own) == 3  # of the last image the class was unknown
    known = energy(2.0 * scores[:3])
    np.testing.assert_allclose(left_out.strange[0], np.sort(known))
    strangest, stranger = left_out.typicality(np.array([[known.max() + 20.0, known.max() + 25.0]]))
    assert 0 < stranger < strangest < 0.25
    np.testing.assert_allclose(left_out.typicality(np.array([[-100.0]])), 1.0)


def test_typicality_falls_evenly_from_each_left_out_image_to_the_next():
    """At a left-out image, which counts no more, it is the share of those beyond it and the new one."""
    left_out = LeftOut(np.full(4, 0.9), np.array([[0.0, 1.0, 2.0, 3.0]]), np.array([0.5, 1.0, 3.0, 3.5]))

    def statistic(value):  # of which typicality is a function
        return -log_ndtr(-(value - 1.5) / np.std([0, 1, 2, 3]))

    at = [brentq(lambda value, t=t: statistic(value) - t, -20, 20) for t in (0.5, 0.75, 1.0, 2.0, 3.0, 3.5, 5.5)]
    expected = np.array([4, 3.5, 3, 2.5, 2, 1, np.exp(-2)]) / 5
    np.testing.assert_allclose(left_out.typicality(np.array([at])), expected)


def test_strangeness_is_put_together_by_fishers_method_with_the_mean_and_deviation_of_the_others():
    rng = np.random.default_rng(0)
    scores, targets, far = rng.normal(size=(30, 3)), np.arange(30) % 3, rng.normal(size=30)
    left_out = LeftOut.from_scores(scores, targets, 1.0, far)
    columns = np.stack([energy(scores), far])

    def together(column, others):
        z = (column - others.mean(axis=1)) / others.std(axis=1)
        return -np.log(norm.sf(z)).sum()

    expected = np.sort([together(columns[:, i], np.delete(columns, i, axis=1)) for i in range(30)])
    np.testing.assert_allclose(left_out.together, expected)
    new = np.array([[columns[0].mean(), 9.0], [columns[1].mean() + 0.3, 9.0]])
    found = np.array([together(each, columns) for each in new.T])
    beyond = np.flatnonzero(expected >= found[0])[0]
    part = (found[0] - expected[beyond - 1]) / (expected[beyond] - expected[beyond - 1])
    inside = (31 - beyond - part) / 31
    np.testing.assert_allclose(left_out.typicality(new), [inside, np.exp(expected[-1] - found[1]) / 31])


def test_known_images_are_flagged_as_rarely_as_promised_by_two_labels_per_class():
    flagged = {"svm": [], "gp": []}
    for seed in range(12):
        x, y = points(2, seed, n_classes=8)
        new, _ = points(40, 100 + seed, n_classes=8)
        for kind, found in flagged.items():
            model, rows = fitted(kind, x, y)
            found.append(np.mean(model.typicality(rows(new)) <= 0.05))
    assert max(np.mean(found) for found in flagged.values()) <= 0.05


@pytest.mark.parametrize("kind", ["gp", "svm", "least-squares"])
@pytest.mark.parametrize("coverage", [0.7, 0.9])
def test_sets_hold_the_class_as_often_as_they_say(kind, coverage):
    held, sizes = [], []
    for seed in range(6):
        x, y = points(12, seed, spread=0.9)
        test, truth = points(100, 100 + seed, spread=0.9)
        model, rows = fitted(kind, x, y)
        sets = model.predict_set(rows(test), coverage)
        held.append(sets[np.arange(len(truth)), truth].mean())
        sizes.append(sets.sum(axis=1))
        assert (sets[np.arange(len(truth)), np.searchsorted(model.classes_, model.predict(rows(test)))]).all()
    # the images were left out of models of fewer labels
    assert coverage - 0.04 < np.mean(held) < coverage + 0.4 * (1 - coverage) + 0.02
    assert np.min(sizes) == 1 and np.max(sizes) > 1


@pytest.mark.parametrize("kind", ["gp", "svm", "least-squares"])
def test_images_of_other_classes_and_of_none_are_strange(kind):
    x, y = points(20)
    known, _ = points(60, 1)
    rng = np.random.default_rng(2)
    new = unit(np.eye(24)[10 + np.arange(300) % 5] + 0.25 * rng.normal(size=(300, 24)))
    model, rows = fitted(kind, x, y)
    typical, strange = model.typicality(rows(known)), model.typicality(rows(new))
    assert (typical <= 0.05).mean() < 0.08 and strange.min() > 0 and typical.max() <= 1
    assert roc_auc_score(np.repeat([0, 1], 300), -np.concatenate([typical, strange])) > 0.85


def test_too_few_labels_say_nothing():
    model = LinearClassifier().fit(np.eye(2), ["a", "b"])
    assert model.left_out_ is None
    assert model.predict_set(np.eye(2)).all() and (model.typicality(np.eye(2)) == 1).all()
    for coverage in (1.0, 90, [0.8, 0.9]):
        with pytest.raises(ValueError, match=f"coverage must be between 0 and 1.*got {re.escape(str(coverage))}"):
            model.predict_set(np.eye(2), coverage)
    probit = GaussianProcessClassifier(likelihood="probit").fit(np.eye(4) + 1, list("aabb"))
    assert (probit.typicality(np.ones((1, 4))) == 1).all()


def scatter_of(x, y):
    """s², literally."""
    classes = np.unique(y)
    return sum(np.sum((x[y == c] - x[y == c].mean(axis=0)) ** 2) for c in classes) / (len(y) - len(classes))


def nearest(new, x, y, s2):
    means = [np.sum((new - x[y == c].mean(axis=0)) ** 2, axis=1) - s2 / np.sum(y == c) for c in np.unique(y)]
    return np.min(means, axis=0)


def test_an_image_is_far_from_the_nearest_mean_of_a_class():
    x, y = points(4)
    x, y = x[:-3], y[:-3]
    gram, own = x @ x.T, np.sum(x**2, axis=1)
    new = np.random.default_rng(3).normal(size=(7, 24))
    s2 = scatter(own, mean_norms(gram, y, 5), y)
    assert s2 == pytest.approx(scatter_of(x, y))
    norms = mean_norms(gram, y, 6, s2)
    assert np.isnan(norms[5])  # a class without an image is near to nobody
    found = nearest_mean(new @ x.T, np.sum(new**2, axis=1), norms, y)
    np.testing.assert_allclose(found, nearest(new, x, y, s2))


def test_the_distance_to_a_mean_of_few_images_is_right_on_average():
    rng = np.random.default_rng(0)
    far = {}
    for per_class in (2, 40):
        found = []
        for _ in range(200):
            x, y = rng.normal(size=(2 * per_class, 30)), np.repeat([0, 1], per_class)
            x[y == 1] += 10.0
            gram, own = x @ x.T, np.sum(x**2, axis=1)
            norms = mean_norms(gram, y, 2, scatter(own, mean_norms(gram, y, 2), y))
            new = rng.normal(size=(5, 30))
            found.append(nearest_mean(new @ x.T, np.sum(new**2, axis=1), norms, y).mean())
        far[per_class] = np.mean(found)
    assert far[2] == pytest.approx(30, abs=1) and far[40] == pytest.approx(30, abs=1)


@pytest.mark.parametrize("rows", ["vectors", "primal", "similarities"])
def test_left_out_distances_of_linear_classifiers_are_those_of_means_that_never_saw_the_image(rows, monkeypatch):
    x, y = points(4)
    similar = rows == "similarities"
    x = x @ x.T if similar else x
    if rows == "primal":
        x = x[:, :12]
        monkeypatch.setattr(linear, "GRAM_LIMIT", 10)
    kind = {"rows": "similarities", "model": "least-squares"} if similar else {}
    seen, kept = [], LeftOut.from_scores
    monkeypatch.setattr(LeftOut, "from_scores", lambda *given: seen.append(given) or kept(*given))
    model = LinearClassifier(C=1.0, random_state=0, **kind).fit(x, y)
    scale = x.std(axis=0) if similar else 1.0
    s2 = scatter_of(x / scale, y) / x.shape[1]
    for train, test in left_out_folds(y, "auto", np.random.RandomState(0)):
        a, b = (x[np.ix_(part, train)] if similar else x[part] for part in (train, test))
        unit_of = a.std(axis=0) if similar else 1.0
        literal = nearest(b / unit_of, a / unit_of, y[train], s2 * a.shape[1]) / a.shape[1]
        np.testing.assert_allclose(seen[0][3][test], literal)
    literal = nearest(x / scale, x / scale, y, s2 * x.shape[1]) / x.shape[1]
    np.testing.assert_allclose(model._strangeness(x)[1], literal)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_left_out_distances_of_a_process_are_those_of_means_that_never_saw_the_image(n_classes, monkeypatch):
    x, y = points(4, n_classes=n_classes)
    gram = x @ x.T
    seen, kept = [], LeftOut.from_scores
    monkeypatch.setattr(LeftOut, "from_scores", lambda *given: seen.append(given) or kept(*given))
    model = GaussianProcessClassifier(optimize=None, weights=[1.0], random_state=0).fit(gram, y)
    for train, test in left_out_folds(y, 10, np.random.RandomState(0)):
        np.testing.assert_allclose(seen[0][3][test], nearest(x[test], x[train], y[train], scatter_of(x, y)), atol=1e-9)
    new = unit(np.random.default_rng(3).normal(size=(7, 24)))
    literal = nearest(new, x, y, scatter_of(x, y))
    np.testing.assert_allclose(model._strangeness(new @ x.T)[1], literal, atol=1e-9)


@pytest.mark.parametrize("metric", ["euclidean", "similarity"])
def test_distances_of_boosted_neighbours_are_to_the_means_of_their_prototypes(metric):
    x, y = points(8)
    new = unit(np.random.default_rng(3).normal(size=(7, 24)))
    rows, test = (x, new) if metric == "euclidean" else (x @ x.T, new @ x.T)
    kernel = "knn" if metric == "euclidean" else "similarity"
    model = MulticlassLeveragedNeighbors(5, metric=metric, kernel=kernel, rounds=0.5, random_state=0).fit(rows, y)
    kept = model.prototypes_
    assert len(kept) < len(x)
    literal = nearest(new, x[kept], y[kept], scatter_of(x, y))
    np.testing.assert_allclose(model._strangeness(test)[1], literal - (metric == "similarity"))


def test_blank_images_and_noise_have_unusual_bags():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(rng.normal(size=6), 1 + rng.random(), size=(40, 6)) for _ in range(60)]
    usual = UsualBags.from_bags(Bags.from_list(arrays))
    rows = np.array([np.concatenate([a.mean(axis=0), a.std(axis=0)]) for a in arrays])
    others = [np.delete(rows, i, axis=0) for i in range(60)]
    distances = np.array([np.mean(np.abs(row - o.mean(axis=0)) / o.std(axis=0)) for row, o in zip(rows, others)])
    np.testing.assert_allclose(usual.distances, np.sort(distances), rtol=1e-4)
    odd = Bags.from_list([np.zeros((40, 6)), 50 * rng.normal(size=(40, 6)), arrays[0]])
    p = usual.typicality(odd)
    assert p[0] < 0.05 and p[1] < 0.05 and p[2] == pytest.approx((1 + np.sum(distances >= distances[0])) / 61, abs=0.02)
    plain = [UsualBags.from_bags(Bags.from_list(list(rng.normal(size=(20, 1, 50))))) for _ in range(40)]
    new = Bags.from_list(list(rng.normal(size=(100, 1, 50))))
    assert 0.02 < np.mean([one.typicality(new) <= 0.1 for one in plain]) <= 0.1
    few = UsualBags.from_bags(Bags.from_list(arrays[:10]))
    assert few.typicality(odd)[1] < 0.01  # far beyond ten images is strange all the same
    assert UsualBags.from_bags(Bags.from_list(arrays[:9])) is None
    all_bags = Bags.from_list(arrays)
    both = Channels(one=all_bags, two=all_bags)
    assert UsualBags.from_bags(both).mean.shape == (24,) and (usual.typicality(both) == 1).all()
    assert UsualBags.from_bags([1, 2]) is None


def test_a_few_numbers_that_one_training_image_alone_has_do_not_hide_blank_images():
    rng = np.random.default_rng(0)
    rows = np.hstack([rng.normal(size=(60, 100)), 0.02 * rng.normal(size=(60, 4))])
    rows[7, 100:] = 1.0  # outputs of a network that are about 0 for all images but one
    bags = Bags.from_list(list(rows[:, None]))
    blank = Bags.from_list([np.r_[np.full(100, 5.0), np.zeros(4)][None]])
    assert UsualBags.from_bags(bags).typicality(blank)[0] < 0.01
