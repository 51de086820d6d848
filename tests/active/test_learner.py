# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import cohen_kappa_score
from sklearn.metrics.pairwise import rbf_kernel

from patchbag.active.labels import is_missing
from patchbag.active.learner import ActiveLearner
from patchbag.active.query import GaussianProcessQuery
from patchbag.active.stopping import ErrorEstimate, judge, kappa
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessClassifier

RNG = np.random.default_rng(0)
Y = np.array(["ant", "bee", "cow"])[np.arange(90) % 3]
X = RNG.normal(size=(3, 5))[np.arange(90) % 3] * 2 + RNG.normal(size=(90, 5))
K = rbf_kernel(X, gamma=0.1)


def test_beliefs_equal_those_of_the_categorizer():
    labelled, rest = np.arange(20), np.arange(20, 90)
    learner = ActiveLearner(noise=0.05).fit(K).teach(labelled, Y[labelled])
    model = GaussianProcessClassifier(optimize=None, noise=0.05, level=0.0, calibrate=False).fit(K[:20, :20], Y[:20])
    np.testing.assert_allclose(learner.predict_proba()[rest], model.predict_proba(K[20:, :20]), atol=1e-9)
    np.testing.assert_array_equal(learner.predict()[rest], model.predict(K[20:, :20]))


def test_query_for_two_classes_is_the_image_of_equation_10():
    two = np.flatnonzero(Y != "cow")
    kernel, labels = K[np.ix_(two, two)], Y[two]
    learner = ActiveLearner(noise=0.05).fit(kernel).teach(np.arange(20), labels[:20])
    model = GaussianProcessClassifier(optimize=None, noise=0.05, level=0.0).fit(kernel[:20, :20], labels[:20])
    mean, variance = model.predict_soft_labels(kernel[20:, :20])
    assert learner.query()[0] == 20 + np.argmin(np.abs(mean) / np.sqrt(variance + 0.05))


def test_stateless_query_follows_scikit_activeml():
    y = np.full(90, np.nan)
    y[:6] = np.arange(6) % 3
    strategy = GaussianProcessQuery(noise=0.05, random_state=0)
    indices, values = strategy.query(K, y, batch_size=4, return_utilities=True)
    assert values.shape == (4, 90)
    assert np.isnan(values[:, :6]).all()
    assert np.isnan(values[1:, indices[0]]).all()
    np.testing.assert_array_equal(np.nanargmax(values, axis=1), indices)
    stateful = ActiveLearner(noise=0.05, random_state=0).fit(K, y)
    np.testing.assert_array_equal(stateful.query(4), indices)
    assert set(strategy.query(K, y, candidates=[50, 60, 70], batch_size=2)) < {50, 60, 70}
    objects = np.array([None if np.isnan(v) else Y[int(v)] for v in y], dtype=object)
    named = GaussianProcessQuery(noise=0.05, missing_label=None, random_state=0)
    np.testing.assert_array_equal(named.query(K, objects, batch_size=4), indices)


def test_a_repaired_kernel_is_the_nearest_semidefinite_one():
    broken = K - 0.6 * np.eye(90)
    values, vectors = np.linalg.eigh(broken)
    nearest = (vectors * np.maximum(values, 0.0)) @ vectors.T
    repaired = ActiveLearner(repair=True, random_state=0).fit(broken).teach(np.arange(6), Y[:6])
    expected = ActiveLearner(random_state=0).fit(nearest).teach(np.arange(6), Y[:6])
    np.testing.assert_allclose(repaired.predict_proba(), expected.predict_proba(), atol=1e-9)
    y = np.array([*np.arange(6) % 3, *[np.nan] * 84])
    stateless = GaussianProcessQuery(repair=True, random_state=0)
    assert stateless.query(broken, y)[0] == repaired.query()[0]


@pytest.mark.parametrize("call", ["predict", "predict_proba", "novelty", "query", "stopping_hint"])
def test_a_learner_without_a_pool_says_so(call):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(ActiveLearner(), call)()


def test_missing_labels_are_recognised():
    assert is_missing([None, np.nan, "a", 0]).tolist() == [True, True, False, False]
    assert is_missing(["?", "a"], "?").tolist() == [True, False]
    assert is_missing(np.array([-1, 0]), -1).tolist() == [True, False]


def test_diverse_batch_does_not_ask_for_twins():
    """Every image of the pool comes twice: a batch of the best ones asks for twins, a diverse one does not."""
    twice = np.vstack([X, X])
    kernel = rbf_kernel(twice, gamma=0.1)
    labels = np.tile(Y, 2)
    picks = {}
    for batch in ("top", "diverse"):
        learner = ActiveLearner(batch=batch, noise=1e-3, random_state=0).fit(kernel).teach(np.arange(9), labels[:9])
        learner.skip(np.arange(90, 99))
        picks[batch] = learner.query(6) % 90
    assert len(set(picks["top"])) == 3
    assert len(set(picks["diverse"])) == 6


def test_one_pick_per_class_is_the_best_for_each_problem_in_turn():
    learner = ActiveLearner(batch="per_class", noise=0.05).fit(K).teach(np.arange(20), Y[:20])
    indices = learner.query(3)
    taken = list(range(20))
    for turn in range(3):
        assert indices[turn] == best_of_problem(learner, (20 + turn) % 3, taken)
        taken.append(indices[turn])


def best_of_problem(learner, c, taken):
    """Equation 10 for the one-versus-all problem of class c, among the images not taken."""
    score = np.abs(learner.posterior_.mean[:, 1 + c]) / np.sqrt(learner.posterior_.variance + learner.noise)
    score[taken] = np.inf
    return int(np.argmin(score))


def test_single_picks_per_class_go_round_the_classes():
    learner = ActiveLearner(batch="per_class", noise=0.05).fit(K).teach(np.arange(20), Y[:20])
    taken, served = list(range(20)), []
    for _ in range(6):
        image = int(learner.query()[0])
        served.append([c for c in range(3) if best_of_problem(learner, c, taken) == image])
        learner.teach([image], [Y[image]])
        taken.append(image)
    assert all(turn % 3 in found for turn, found in enumerate(served, start=20))
    # a skipped image leaves its problem unserved
    image = int(learner.query()[0])
    learner.skip(image)
    assert learner.query()[0] == best_of_problem(learner, 26 % 3, [*taken, image])


def test_cold_start_spreads_over_the_classes_before_any_label():
    for cold_start in ("typical", "farthest"):
        learner = ActiveLearner(cold_start=cold_start, random_state=0).fit(K)
        assert len(set(Y[learner.query(12)])) == 3
    outlier = np.vstack([X, np.full((1, 5), 40.0)])
    kernel = rbf_kernel(outlier, gamma=0.1)
    assert 90 not in ActiveLearner(random_state=0).fit(kernel).query(5)
    assert 90 in ActiveLearner(cold_start="farthest", random_state=0).fit(kernel).query(5)


def test_with_one_class_only_the_learner_still_asks_and_predicts():
    learner = ActiveLearner(random_state=0).fit(K).teach([0, 3], [Y[0], Y[3]])
    assert set(learner.predict()) == {"ant"}
    np.testing.assert_array_equal(learner.predict_proba(), np.ones((90, 1)))
    assert learner.query()[0] not in (0, 3)


def test_new_classes_open_by_themselves_unless_the_classes_are_given():
    learner = ActiveLearner().fit(K).teach([0, 1], Y[:2])
    learner.teach([2], ["dog"])
    assert learner.classes_ == ["ant", "bee", "dog"]
    fixed = ActiveLearner(classes=["ant", "bee", "cow"]).fit(K).teach([0, 1], Y[:2])
    assert fixed.predict_proba().shape == (90, 3)
    assert set(fixed.predict()) <= {"ant", "bee"}
    with pytest.raises(ValueError, match="label 'dog' is not one of the classes"):
        fixed.teach([4, 5], ["bee", "dog"])
    assert fixed.n_labels_ == 2


def test_novelty_is_highest_for_the_class_without_labels():
    known = np.flatnonzero(Y != "cow")[:30]
    novelty = ActiveLearner().fit(K).teach(known, Y[known]).novelty()
    rest = np.setdiff1d(np.arange(90), known)
    assert novelty[rest][Y[rest] == "cow"].mean() > 2 * novelty[rest][Y[rest] != "cow"].mean()


@pytest.mark.parametrize("criterion", ["uncertainty", "margin", "entropy", "one_vs_all", "influence"])
def test_classes_without_labels_have_no_say(criterion):
    """Their means are all alike and all -1 near the labels: doubt between two of them would be doubt about nothing."""
    known = np.flatnonzero(Y != "cow")[:12]
    open_, closed = (
        ActiveLearner(criterion, classes=classes, random_state=0).fit(K).teach(known, Y[known])
        for classes in (None, ["ant", "bee", "cow", "dog", "eel"])
    )
    np.testing.assert_allclose(closed.query(return_utilities=True)[1], open_.query(return_utilities=True)[1])
    np.testing.assert_allclose(closed.novelty(), open_.novelty())


def test_skipped_images_are_never_asked_for():
    learner = ActiveLearner(random_state=0).fit(K).teach([0, 1, 2], Y[:3])
    first = learner.query()[0]
    learner.skip(first)
    assert first not in learner.query(86)


def test_stopping_hint_waits_for_settled_predictions():
    learner = ActiveLearner(window=3).fit(K)
    learner.teach([0, 1, 2], Y[:3])
    assert "rounds so far" in learner.stopping_hint().reason
    for i in range(3, 90):
        learner.teach([i], [Y[i]])
    hint = learner.stopping_hint()
    assert hint.stop and "every image" in hint.reason
    settled = ActiveLearner(window=3).fit(K).teach(np.arange(75), Y[:75])
    for i in range(75, 80):
        settled.teach([i], [Y[i]])
    assert settled.stopping_hint().stop
    assert settled.stopping_hint().error.expected < 0.3


@pytest.mark.parametrize("taught", [[], [0, 3]])
def test_stopping_hint_judges_nothing_before_two_classes_have_labels(taught):
    hint = ActiveLearner(classes=["ant", "bee", "cow"]).fit(K).teach(taught, Y[taught]).stopping_hint()
    assert not hint.stop and "nothing to judge yet" in hint.reason
    assert np.isnan(hint.error.expected) and np.isnan(hint.agreement)


def test_expected_error_is_that_of_the_images_left():
    learner = ActiveLearner(noise=1e-3).fit(K).teach(np.arange(60), Y[:60]).skip([60, 61])
    expected = 1 - learner.predict_proba()[62:].max(axis=1).mean()
    assert learner.stopping_hint().error.expected == pytest.approx(expected)
    assert expected > 1.2 * (1 - learner.predict_proba().max(axis=1).mean())


def test_only_the_latest_rounds_of_the_window_count():
    kappas = [0.2, 0.4, 1.0, 0.98, 0.99]
    hint = judge(kappas, 3, 0.985, 2, 10, ErrorEstimate(0.1))
    assert hint.stop and hint.agreement == pytest.approx(0.99)
    assert not judge(kappas, 4, 0.985, 2, 10, ErrorEstimate(0.1)).stop
    early = judge(kappas[2:], 4, 0.9, 2, 10, ErrorEstimate(0.1))
    assert not early.stop and "fewer than 5 rounds" in early.reason
    learner = ActiveLearner(window=3).fit(K).teach([0, 1, 2], Y[:3])
    for i in range(3, 60):
        learner.teach([i], [Y[i]])
    assert np.mean(learner.kappas_) < 0.99 <= np.mean(learner.kappas_[-3:])
    assert learner.stopping_hint().stop
    assert learner.stopping_hint().agreement == pytest.approx(np.mean(learner.kappas_[-3:]))


def test_kappa_equals_scikit_learn():
    a, b = RNG.integers(0, 3, 50), RNG.integers(0, 3, 50)
    assert kappa(a, b, 3) == pytest.approx(cohen_kappa_score(a, b))
    assert kappa(np.zeros(4, int), np.zeros(4, int), 3) == 1.0


def test_same_seed_same_questions():
    random = ActiveLearner("random", random_state=4)
    np.testing.assert_array_equal(clone(random).fit(K).query(10), clone(random).fit(K).query(10))


@pytest.mark.parametrize(
    "criterion", ["uncertainty", "margin", "variance", "influence", "entropy", "one_vs_all", "random"]
)
def test_every_criterion_learns_the_pool(criterion):
    learner = ActiveLearner(criterion, random_state=0).fit(K).teach([0, 1, 2], Y[:3])
    for _ in range(10):
        asked = learner.query(3)
        learner.teach(asked, Y[asked])
    assert learner.n_labels_ == 33
    assert np.mean(learner.predict() == Y) > 0.85


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: ActiveLearner("best").fit(K), "'criterion' parameter"),
        (lambda: ActiveLearner(batch="all").fit(K), "'batch' parameter"),
        (lambda: ActiveLearner(cold_start="hot").fit(K), "'cold_start' parameter"),
        (lambda: ActiveLearner("entropy", batch="per_class").fit(K), "per_class"),
        (lambda: ActiveLearner(noise=0).fit(K), "'noise' parameter"),
        (lambda: ActiveLearner().fit(-K), "not positive semidefinite: eigenvalues from -"),
        (lambda: ActiveLearner().fit(K - 0.6 * np.eye(90)), "not positive semidefinite.*pass repair=True"),
        (lambda: ActiveLearner().fit(np.triu(K)), "not symmetric"),
        (lambda: GaussianProcessQuery().query(K - 0.6 * np.eye(90), [np.nan] * 90), "not positive semidefinite"),
        (lambda: ActiveLearner().fit([K, K]), "one kernel of the pool, got 2"),
        (lambda: ActiveLearner().fit(K, Y[:5]), "90 images but y has 5"),
        (lambda: ActiveLearner().fit(K).teach([90], ["ant"]), "image 90 is not in the pool, which has images 0 to 89"),
        (lambda: ActiveLearner().fit(K).teach([1.5], ["ant"]), "is not in the pool"),
        (lambda: ActiveLearner().fit(K).teach([1, 2], ["ant"]), "2 images and 1 labels"),
        (lambda: ActiveLearner().fit(K).teach([1], [None]), "call skip"),
        (lambda: ActiveLearner().fit(K).teach([1, 1], ["ant", "bee"]), "image 1 already has the label 'ant'"),
        (lambda: ActiveLearner().fit(K).skip([-1]), "image -1 is not in the pool"),
        (lambda: ActiveLearner().fit(K).query(91), "between 1 and the 90 images left"),
        (lambda: ActiveLearner().fit(K).predict(), "no image has a label yet"),
    ],
)
def test_bad_input_is_a_clear_error(act, message):
    with pytest.raises(ValueError, match=message):
        act()
