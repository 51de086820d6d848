"""Stochastic gradient descent in blocks is that of the printed formula, one sample after the other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import LinearSVC

from patchbag import StochasticLinearClassifier
from patchbag.classifiers import stochastic
from patchbag.classifiers.stripes import bounds_of, stripes
from patchbag.storage import models as storage


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    X = np.eye(12)[y] + 0.25 * rng.normal(size=(600, 12))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


def literal(X, codes, order, lam, n_classes):
    """(A.4) with the constant entry, and the weighted mean of the weights."""
    t0 = 1 / (lam * np.sqrt(1 / np.sqrt(lam)))
    X = np.hstack([X, np.ones((len(X), 1))]).astype(float)
    w, average = np.zeros((n_classes, X.shape[1])), np.zeros((n_classes, X.shape[1]))
    for t, i in enumerate(order):
        eta = 1 / (lam * (t + t0))
        for c in range(n_classes):
            y = 1 if codes[i] == c else -1
            delta = y * (w[c] @ X[i]) < 1
            w[c] = (1 - lam * eta) * w[c] + eta * y * X[i] * delta
        average += 2 / (t + 3) * (w - average)
    return average


@pytest.mark.parametrize("kind", ["dense", "sparse", "sparser", "half"])
def test_blocks_give_the_weights_of_one_sample_after_the_other(samples, kind, monkeypatch):
    X, y = samples
    X, y = X[:300].copy(), y[:300]
    X[np.abs(X) < 0.1] = 0
    if kind == "sparser":  # so that no product is made dense
        monkeypatch.setattr(stochastic, "DENSE", 1.1)
    if kind == "half":
        X = X.astype(np.float16)
    monkeypatch.setattr(stochastic, "BLOCK", (37, 37))
    seen = []

    class Fixed(np.random.RandomState):
        def permutation(self, n):
            seen.append(np.random.RandomState(len(seen)).permutation(n))
            return seen[-1]

    monkeypatch.setattr(stochastic, "check_random_state", lambda _: Fixed(0))
    given = sparse.csr_array(X) if kind.startswith("sparse") else X
    model = StochasticLinearClassifier(1e-2, epochs=1).fit(given, y)
    chunk = next(stripes(bounds_of(X), type("R", (), {"permutation": lambda self, n: seen[0]})()))
    expected = literal(X, y, chunk[seen[1]], 1e-2, 3)
    found = np.hstack([model.coef_, model.intercept_[:, None]])
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)


def test_it_is_as_accurate_as_the_exact_solver(samples):
    X, y = samples
    exact = LinearSVC(loss="hinge", max_iter=20_000).fit(X[:400], y[:400]).score(X[400:], y[400:])
    ours = StochasticLinearClassifier(random_state=0).fit(X[:400], y[:400])
    assert ours.score(X[400:], y[400:]) > exact - 0.02
    two = StochasticLinearClassifier(1e-3, random_state=0).fit(X, y == 1)
    assert two.coef_.shape == (1, 12) and two.score(X, y == 1) > 0.85
    assert list(two.classes_) == [False, True]


def test_each_lambda_goes_on_from_the_weights_and_the_step_of_the_one_before(samples, monkeypatch):
    X, y = samples
    begun, ended = [], []

    class Watched(StochasticLinearClassifier):
        def _go_on(self, lam, weights, pace):
            ended.append(None if not begun else (self._average(), self.alpha_ * (self.t_ + self.t0_)))
            begun.append((lam, weights, pace))
            super()._go_on(lam, weights, pace)

    monkeypatch.setattr(stochastic, "LAMBDAS", (1e-2, 1e-3))
    model = Watched(epochs=3, random_state=0).fit(X, y)
    assert [lam for lam, *_ in begun[1:3]] == [1e-2, 1e-3] and begun[1][2] == pytest.approx(1e-2**0.25)
    for (_, weights, pace), (average, reached) in zip(begun[2:3], ended[2:3]):
        np.testing.assert_array_equal(weights, average)
        assert pace == pytest.approx(reached)
    assert begun[3][0] == model.alpha_ and begun[3][1].any() and model.t_ == 3 * 600


def test_rows_that_say_how_sure_take_no_part_in_the_choice_of_lambda(samples, monkeypatch):
    X, y = samples
    seen = []

    class Watched(StochasticLinearClassifier):
        def _choose(self, X, codes, rows, random):
            seen.append(rows)
            super()._choose(X, codes, rows, random)

        def _learn_how_sure(self, X, codes, aside, random):
            seen.append(aside)
            return super()._learn_how_sure(X, codes, aside, random)

    Watched(probability=True, random_state=0).fit(X, y)
    assert len(seen[0]) == 480 and len(seen[1]) == 120 and not np.intersect1d(*seen).size


def test_batches_one_after_the_other_and_a_file_give_a_model(samples, tmp_path):
    X, y = samples
    np.save(tmp_path / "x.npy", X.astype(np.float16))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    whole = StochasticLinearClassifier(1e-3, epochs=2, random_state=0).fit(mapped, y)
    assert whole.score(mapped, y) > 0.9
    parts = StochasticLinearClassifier(1e-3, random_state=0)
    for start in range(0, 600, 100):
        parts.partial_fit(X[start : start + 100], y[start : start + 100], classes=[0, 1, 2])
    assert parts.t_ == 600 and parts.score(X, y) > 0.9
    with pytest.raises(ValueError, match="not among the classes"):
        parts.partial_fit(X[:2], [0, 7])
    with pytest.raises(ValueError, match="must name all classes"):
        StochasticLinearClassifier().partial_fit(X, y)


def test_stripes_hold_every_row_once():
    rows = np.concatenate(list(stripes(bounds_of(np.empty((10_001, 0))), np.random.RandomState(0))))
    assert len(rows) == 10_001 and len(np.unique(rows)) == 10_001


def test_numbers_that_are_not_finite_are_named(samples):
    X, y = samples
    X = X.copy()
    X[3, 3] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        StochasticLinearClassifier(1e-3).fit(X, y)


def test_probabilities_are_those_of_rows_that_were_left_out(tmp_path):
    rng = np.random.default_rng(1)
    y = np.arange(6000) % 3
    X = (np.eye(12)[y] + 0.6 * rng.normal(size=(6000, 12))).astype(np.float16)  # classes overlap
    model = StochasticLinearClassifier(1e-3, probability=True, random_state=0).fit(X[:3000], y[:3000])
    p, right = model.predict_proba(X[3000:]), model.predict(X[3000:]) == y[3000:]
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == model.predict(X[3000:])).all()
    assert 0.7 < right.mean() < 0.95 and abs(p.max(axis=1).mean() - right.mean()) < 0.03
    held = model.predict_set(X[3000:], 0.95)[np.arange(3000), y[3000:]]
    assert 0.93 < held.mean() < 0.97
    assert model.left_out_.own.shape == (600,) and model.t_ == 5 * 2400 + 600
    assert np.median(model.typicality(X[3000:])) > 0.4 and model.typicality(np.zeros((1, 12)))[0] < 0.2
    loaded = storage.load(storage.save(model, tmp_path / "m"))
    np.testing.assert_array_equal(loaded.predict_proba(X[:9]), model.predict_proba(X[:9]))


def test_without_probability_all_rows_are_learned_from_and_nothing_is_said_of_them(samples):
    X, y = samples
    model = StochasticLinearClassifier(1e-3, random_state=0).fit(X, y)
    assert model.t_ == 5 * 600 and not hasattr(model, "predict_proba")
    with pytest.raises(ValueError, match="probability=True"):
        model.set_params(probability=True).predict_proba(X)
