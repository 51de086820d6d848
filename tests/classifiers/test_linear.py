from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from patchbag.classifiers import linear
from patchbag.classifiers.confidence.temperature import left_out_folds
from patchbag.classifiers.linear import LinearClassifier


@pytest.fixture(scope="module")
def wide():
    """90 rows in 300-D, three classes that overlap a little, and as many to test."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1.6, (3, 300)) / np.sqrt(300) * 3
    y = np.repeat(["a", "b", "c"], 60)
    x = centres[np.repeat([0, 1, 2], 60)] + rng.normal(0, 0.25, (180, 300))
    order = rng.permutation(180)
    return x[order[:90]], y[order[:90]], x[order[90:]], y[order[90:]]


def test_the_weights_are_those_of_the_kernel_machine(wide):
    x, y, test, _ = wide
    ours = LinearClassifier(C=1.0).fit(x, y)
    machine = SVC(kernel="linear", C=1.0).fit(x, y == "b")
    assert np.allclose(ours.decision_function(test)[:, 1], machine.decision_function(test), atol=1e-2)


def test_the_primal_solver_gives_nearly_the_same_answers(wide, monkeypatch):
    x, y, test, _ = wide
    x, test = x[:, :20], test[:, :20]
    dual = LinearClassifier(C=1.0).fit(x, y)
    monkeypatch.setattr(linear, "GRAM_LIMIT", 10)
    primal = LinearClassifier(C=1.0).fit(x, y)
    assert np.abs(primal.decision_function(test) - dual.decision_function(test)).mean() < 0.1


def test_left_out_scores_of_least_squares_are_those_of_retraining(wide, monkeypatch):
    x, y, _, _ = wide
    seen = []
    monkeypatch.setattr(linear, "fit_temperature", lambda scores, targets: seen.append((scores, targets)) or 1.0)
    LinearClassifier("least-squares", C=2.0, random_state=0).fit(x[:12], y[:12])
    scores, targets = seen[0]
    for train, test in left_out_folds(targets, 3, np.random.RandomState(0)):
        signs = np.where(targets[train, None] == np.arange(3), 1.0, -1.0)
        inverse = np.linalg.inv(x[train] @ x[train].T + np.eye(len(train)) / 2.0)
        mean = signs.mean(axis=0)
        plain = x[test] @ x[train].T @ inverse @ (signs - mean) + mean
        # a training image's score moves by this share of a change of its own target
        response = np.mean(np.diagonal(x[train] @ x[train].T @ inverse))
        np.testing.assert_allclose(scores[test], plain / response)


def similarity_rows(per_class, seed, n_classes=6, n_test=40):
    """Rows of exp(-distance²) to the training images, for those and for new ones."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 0.42, size=(n_classes, 20))
    y, y_test = (np.tile(np.arange(n_classes), n) for n in (per_class, n_test))
    x, x_test = (centres[labels] + rng.normal(size=(len(labels), 20)) for labels in (y, y_test))
    rows = [np.exp(-((a[:, None] - x) ** 2).sum(axis=2) / 40) for a in (x, x_test)]
    return rows[0], y, rows[1], y_test


@pytest.mark.parametrize(("per_class", "most"), [(2, 0.15), (3, 0.1), (5, 0.05), (20, 0.03)])
def test_the_similarity_of_an_image_to_itself_does_not_make_sure(per_class, most):
    gaps = []
    for seed in range(12):
        x, y, test, truth = similarity_rows(per_class, seed)
        model = LinearClassifier("least-squares", C=1.0, rows="similarities", random_state=0).fit(x, y)
        right = (model.predict(test) == truth).mean()
        gaps.append(model.predict_proba(test).max(axis=1).mean() - right)
    assert 0.2 < right < 0.9
    assert abs(np.mean(gaps)) < most


def test_shares_that_left_out_images_had_fall_to_the_others():
    rng = np.random.default_rng(0)
    x = np.sqrt(rng.dirichlet(np.full(9, 0.5), size=9))
    train, test = np.arange(6), np.arange(6, 9)
    known, new = linear.leave_out_columns(x, train, test, shares=True)
    raw = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x[:6, :6], x[6:, :6])]
    mean, deviation = raw[0].mean(axis=0), raw[0].std(axis=0)
    np.testing.assert_allclose(known, (raw[0] - mean) / deviation)
    np.testing.assert_allclose(new, (raw[1] - mean) / deviation)
    plain, _ = linear.leave_out_columns(x, train, test, shares=False)
    np.testing.assert_allclose(plain, StandardScaler().fit_transform(x[:6, :6]))


def test_similarities_are_cut_by_rows_and_columns_in_cross_validation():
    x, y, _, _ = similarity_rows(6, 0)
    model = LinearClassifier("least-squares", C=1.0, rows="similarities")
    assert cross_val_score(model, x, y, cv=3).mean() > 0.3
    with pytest.raises(ValueError, match=r"make a square matrix, got \(36, 35\)"):
        model.fit(x[:, 1:], y)


@pytest.mark.parametrize("model", ["svm", "least-squares"])
def test_four_images_of_four_separable_classes_do_not_make_sure(model):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 50))
    y, truth = np.repeat(np.arange(4), 4), np.repeat(np.arange(4), 100)
    # the training images are typical ones, new ones are not
    x = centres[y] + 0.3 * rng.normal(size=(16, 50))
    test = centres[truth] + 2 * rng.normal(size=(400, 50))
    fitted = LinearClassifier(model, random_state=0).fit(x, y)
    p = fitted.predict_proba(test)
    wrong = p.argmax(axis=1) != truth
    assert wrong.sum() > 5
    assert p[wrong].max(axis=1).mean() < 0.8 and p[wrong].max() < 0.995 and fitted.predict_proba(x).max() < 0.9999


@pytest.mark.parametrize("model", ["svm", "least-squares"])
def test_probabilities_are_calibrated_and_agree_with_the_prediction(wide, model):
    x, y, test, truth = wide
    fitted = LinearClassifier(model).fit(x, y)
    p = fitted.predict_proba(test)
    assert np.allclose(p.sum(axis=1), 1)
    assert np.array_equal(fitted.classes_[p.argmax(axis=1)], fitted.predict(test))
    accuracy = (fitted.predict(test) == truth).mean()
    assert accuracy > 0.8
    assert abs(p.max(axis=1).mean() - accuracy) < 0.1


def test_two_classes_have_one_row_of_scores(wide):
    x, y, test, _ = wide
    two = y != "c"
    fitted = LinearClassifier().fit(x[two], y[two])
    scores = fitted.decision_function(test)
    assert scores.shape == (90,) and fitted.coef_.shape == (1, 300)
    assert np.array_equal(fitted.predict(test), np.where(scores > 0, "b", "a"))
    assert fitted.predict_proba(test).shape == (90, 2)


def test_float32_rows_are_not_copied_to_double_and_give_the_same_labels(wide):
    x, y, test, _ = wide
    narrow = LinearClassifier(C=1.0).fit(x.astype(np.float32), y)
    assert narrow.coef_.dtype == np.float32
    assert np.array_equal(narrow.predict(test.astype(np.float32)), LinearClassifier(C=1.0).fit(x, y).predict(test))


def test_bad_input_is_a_clear_error(wide):
    x, y, _, _ = wide
    with pytest.raises(ValueError, match="at least two classes"):
        LinearClassifier().fit(x, ["a"] * 90)
    with pytest.raises(ValueError, match="contains NaN"):
        LinearClassifier().fit(np.where(np.arange(90)[:, None] == 3, np.nan, x), y)
    with pytest.raises(ValueError, match="The 'model' parameter of LinearClassifier must be"):
        LinearClassifier("forest").fit(x, y)
    with pytest.raises(ValueError, match="X has 2 features, but LinearClassifier is expecting 300"):
        clone(LinearClassifier()).fit(x, y).predict(x[:, :2])


@pytest.mark.parametrize("model", ["svm", "least-squares"])
@pytest.mark.parametrize("single", [["a"], ["a", "b", "c"]])
def test_a_class_with_a_single_image_does_not_switch_calibration_off(wide, model, single):
    x, y, test, truth = wide
    index = np.concatenate([np.flatnonzero(y == c)[: 1 if c in single else 20] for c in "abc"])
    fitted = LinearClassifier(model, random_state=0).fit(x[index], y[index])
    assert fitted.temperature_ != 1.0
    p = fitted.predict_proba(test)
    assert abs(p.max(axis=1).mean() - (fitted.predict(test) == truth).mean()) < 0.2


def test_two_images_train_without_calibration(wide):
    x, y, _, _ = wide
    index = [int(np.flatnonzero(y == c)[0]) for c in "ab"]
    fitted = LinearClassifier().fit(x[index], y[index])
    assert fitted.temperature_ == 1.0
    assert np.array_equal(fitted.predict(x[index]), y[index])


@pytest.mark.parametrize("limit", [10, 6000])
def test_the_seed_decides_the_folds_and_the_solver(wide, monkeypatch, limit):
    monkeypatch.setattr(linear, "GRAM_LIMIT", limit)
    x, y, _, _ = wide
    one, same, other = (LinearClassifier(C=1.0, random_state=s).fit(x[:, :20], y).temperature_ for s in (0, 0, 1))
    assert one == same != other


def test_labels_of_two_kinds_are_an_error_and_one_extreme_row_does_not_run_for_ever():
    X = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ValueError, match="some labels are texts"):
        LinearClassifier().fit(X, ["a", 1] * 15)
    X[7] = 1e8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LinearClassifier(C=100.0, max_iter=1000).fit(X, np.arange(30) % 2)
    assert np.isfinite(model.predict_proba(X)).all()
