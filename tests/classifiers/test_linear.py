from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import LeaveOneOut
from sklearn.svm import SVC

from patchbag.classifiers import linear
from patchbag.classifiers.linear import LinearClassifier, fit_temperature


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


def test_left_out_scores_of_least_squares_are_those_of_retraining(wide):
    x, y, _, _ = wide
    x, y = x[:12], (y[:12] == "a").astype(int)
    signs = np.where(y == 1, 1.0, -1.0)[:, None]
    values, vectors = np.linalg.eigh(x @ x.T)
    mean = signs.mean()
    _, _, fast = linear.least_squares_dual(values, vectors, signs, C=2.0)
    for train, test in LeaveOneOut().split(x):
        gram = x[train] @ x[train].T + np.eye(11) / 2.0
        # the closed form keeps the mean of all targets, as the model does
        slow = x[test] @ x[train].T @ np.linalg.solve(gram, signs[train, 0] - mean) + mean
        assert fast[test[0], 0] == pytest.approx(slow[0])


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


def test_the_temperature_maximises_the_likelihood(rng):
    logits = rng.normal(size=(4000, 3))
    p = np.exp(2.5 * logits) / np.exp(2.5 * logits).sum(axis=1, keepdims=True)
    targets = (p.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    assert fit_temperature(logits, targets) == pytest.approx(2.5, rel=0.1)


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


def test_one_image_of_a_class_trains_with_a_warning(wide):
    x, y, _, _ = wide
    index = [int(np.flatnonzero(y == c)[0]) for c in "abc"]
    with pytest.warns(UserWarning, match="single training image"):
        fitted = LinearClassifier().fit(x[index], y[index])
    assert np.array_equal(fitted.predict(x[index]), y[index])


def test_fewer_than_two_folds_are_refused_and_two_images_of_a_class_calibrate_without_a_warning(wide):
    x, y, _, _ = wide
    for model in ("svm", "least-squares"):
        with pytest.raises(ValueError, match=r"'folds' parameter of .* must be an int"):
            LinearClassifier(model, folds=1).fit(x, y)
    index = np.concatenate([np.flatnonzero(y == c)[:2] for c in "abc"])
    assert LinearClassifier(folds=5).fit(x[index], y[index]).temperature_ != 1.0


def test_bad_input_is_a_clear_error(wide):
    x, y, _, _ = wide
    with pytest.raises(ValueError, match="at least two classes"):
        LinearClassifier().fit(x, ["a"] * 90)
    with pytest.raises(ValueError, match="row 3 has NaN"):
        LinearClassifier().fit(np.where(np.arange(90)[:, None] == 3, np.nan, x), y)
    with pytest.raises(ValueError, match=r"'model' parameter of .* must be a str among"):
        LinearClassifier("forest").fit(x, y)
    with pytest.raises(ValueError, match="trained on 300 dimensions, got 2"):
        clone(LinearClassifier()).fit(x, y).predict(x[:, :2])
