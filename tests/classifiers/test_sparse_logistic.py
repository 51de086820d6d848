import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from patchbag.classifiers import sparse_logistic
from patchbag.classifiers.sparse_logistic import (
    SparseLogisticClassifier,
    fit_intercept,
    largest_penalty,
    replace_diagonal,
)


@pytest.fixture
def similarities():
    """Similarities of 90 training and 30 test points of three classes to the training points."""
    rng = np.random.default_rng(0)
    y = np.tile(["city", "coast", "forest"], 40)
    centres = {"city": [0, 0], "coast": [4, 0], "forest": [0, 4]}
    x = np.array([centres[c] for c in y]) + rng.normal(size=(120, 2))
    gram = np.exp(-((x[:, None] - x[None]) ** 2).sum(axis=-1) / 4)
    return gram[:90, :90], y[:90], gram[90:, :90], y[90:]


def unbalanced(sizes, separation, seed=0, test=10):
    """Similarities of training points and ``test`` times as many new ones, classes of unequal size in 20 dimensions."""
    rng = np.random.default_rng(seed)
    centres = separation * rng.normal(size=(len(sizes), 20))
    y, y_test = (np.repeat(np.arange(len(sizes)), times * np.array(sizes)) for times in (1, test))
    x, x_test = (centres[c] + rng.normal(size=(len(c), 20)) for c in (y, y_test))
    squared = [((a**2).sum(axis=1)[:, None] + (x**2).sum(axis=1) - 2 * a @ x.T) for a in (x, x_test)]
    width = squared[0].mean()
    return np.exp(-squared[0] / width), y, np.exp(-squared[1] / width), y_test


def objective(parameters, X, sign, penalty):
    """Eq. 2.24 with α = u - v, u and v ≥ 0."""
    p = X.shape[1]
    f = X @ (parameters[:p] - parameters[p : 2 * p]) + parameters[-1]
    return np.mean(np.logaddexp(0, -sign * f)) + penalty * parameters[: 2 * p].sum()


def test_solution_minimises_the_printed_objective():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    y = (X[:, 0] + 0.3 * rng.normal(size=60) > 0).astype(int)
    model = SparseLogisticClassifier(0.05, scale=None, tol=1e-8, max_iter=5000).fit(X, y)
    centred, sign = X - X.mean(axis=0), 2 * y - 1
    bounds = [(0, None)] * 8 + [(None, None)]
    best = minimize(objective, np.zeros(9), (centred, sign, 0.05), bounds=bounds, options={"ftol": 1e-14, "gtol": 1e-9})
    alpha = best.x[:4] - best.x[4:8]
    np.testing.assert_allclose(model.coef_[0], alpha, atol=0.01)
    own = np.concatenate([np.maximum(model.coef_[0], 0), np.maximum(-model.coef_[0], 0), model.intercept_])
    assert objective(own, centred, sign, 0.05) == pytest.approx(best.fun, abs=1e-4)


@pytest.mark.parametrize("multinomial", [False, True])
def test_few_images_are_kept_and_new_ones_recognised(similarities, multinomial):
    X, y, X_test, y_test = similarities
    model = SparseLogisticClassifier(0.02, multinomial=multinomial).fit(X, y)
    assert 0 < model.n_kept_ < 60
    np.testing.assert_array_equal(model.kept_, (model.coef_ != 0).any(axis=0))
    assert model.score(X_test, y_test) > 0.8
    # the images that are not kept need not be compared with
    blanked = np.where(model.kept_, X_test, 123.0)
    np.testing.assert_allclose(model.decision_function(blanked), model.decision_function(X_test))


@pytest.mark.parametrize("multinomial", [False, True])
def test_probabilities_sum_to_one_and_rank_as_the_scores_do(similarities, multinomial):
    X, y, X_test, _ = similarities
    model = SparseLogisticClassifier(0.02, multinomial=multinomial).fit(X, y)
    p = model.predict_proba(X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X_test))
    binary = SparseLogisticClassifier(0.02).fit(X[y != "city"], y[y != "city"])
    score = binary.decision_function(X_test)
    np.testing.assert_allclose(binary.predict_proba(X_test)[:, 1], 1 / (1 + np.exp(-score)))


def test_nothing_is_kept_from_the_largest_penalty_on(similarities):
    X, y, _, _ = similarities
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    limit = largest_penalty(z, (y[:, None] == np.unique(y)).astype(float))
    assert SparseLogisticClassifier(1.05 * limit, tol=1e-6).fit(X, y).n_kept_ == 0
    assert SparseLogisticClassifier(0.9 * limit, tol=1e-6).fit(X, y).n_kept_ > 0


def test_penalty_is_chosen_by_cross_validation(similarities):
    X, y, X_test, y_test = similarities
    model = SparseLogisticClassifier(random_state=0).fit(X, y)
    # the strongest penalty whose accuracy no later one beats by much
    chosen = list(model.penalties_).index(model.penalty_)
    assert len(model.scores_) == len(model.penalties_) == 6
    assert model.scores_.max() <= model.scores_[chosen] + 0.003
    assert (model.scores_[:chosen] < model.scores_[chosen]).all()
    assert model.score(X_test, y_test) > 0.8
    assert model.penalty_ == SparseLogisticClassifier(n_jobs=1, random_state=0).fit(X, y).penalty_


def test_own_similarity_is_ignored_on_request():
    # weights that an image gives itself separate the training set perfectly and mean nothing for others
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 40)
    X = 0.02 * rng.random((80, 80)) + 0.01 * (y[:, None] == y)
    test = 0.02 * rng.random((60, 80)) + 0.01 * (np.repeat([0, 1], 30)[:, None] == y)
    with_self = X + 0.9 * np.eye(80)
    penalty = 0.05
    plain = SparseLogisticClassifier(penalty).fit(with_self, y).score(test, np.repeat([0, 1], 30))
    ignoring = SparseLogisticClassifier(penalty, ignore_self=True).fit(with_self, y).score(test, np.repeat([0, 1], 30))
    assert ignoring > 0.95 > plain + 0.1
    np.testing.assert_allclose(
        replace_diagonal(with_self).diagonal(), [np.delete(X[:, i], i).mean() for i in range(80)]
    )


@pytest.mark.parametrize("scale", ["columns", "global"])
def test_units_of_the_similarities_do_not_matter(similarities, scale):
    X, y, X_test, _ = similarities
    a = SparseLogisticClassifier(0.02, scale=scale, tol=1e-9, max_iter=5000).fit(X, y).predict_proba(X_test)
    b = (
        SparseLogisticClassifier(0.02, scale=scale, tol=1e-9, max_iter=5000)
        .fit(1e-4 * X, y)
        .predict_proba(1e-4 * X_test)
    )
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_estimator_works_in_cross_validation(similarities):
    X, y, _, _ = similarities
    assert cross_val_score(SparseLogisticClassifier(0.02), X, y, cv=3).mean() > 0.8
    assert clone(SparseLogisticClassifier(0.3, scale="global")).get_params()["scale"] == "global"


def test_a_constant_column_is_left_out(similarities):
    X, y, _, _ = similarities
    model = SparseLogisticClassifier(0.02).fit(np.concatenate([X, np.ones((90, 1))], axis=1), y)
    assert not model.kept_[-1]


def test_wrong_use_is_named(similarities):
    X, y, _, _ = similarities
    with pytest.raises(ValueError, match="'penalty' parameter"):
        SparseLogisticClassifier(0).fit(X, y)
    with pytest.raises(ValueError, match="'scale' parameter"):
        SparseLogisticClassifier(scale="rows").fit(X, y)
    with pytest.raises(ValueError, match="at least two classes"):
        SparseLogisticClassifier(0.1).fit(X, ["a"] * 90)
    with pytest.raises(ValueError, match="square matrix; got"):
        SparseLogisticClassifier(0.1, ignore_self=True).fit(X[:, 1:], y)
    with pytest.raises(ValueError, match="class 'one' has one image"):
        SparseLogisticClassifier().fit(X, ["one"] + ["two"] * 89)
    with pytest.raises(ValueError, match="X has 80 features, but SparseLogisticClassifier is expecting 90"):
        SparseLogisticClassifier(0.1).fit(X, y).predict(X[:, :80])
    with pytest.raises(ValueError, match="NaN"):
        SparseLogisticClassifier(0.1).fit(X * np.nan, y)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("spread", [0, 1e-3, 1, 1e3])
def test_intercept_makes_the_mean_sigmoid_the_share_of_positives(spread, sign):
    target = np.arange(50) < 4
    scores = sign * spread * np.random.default_rng(0).normal(size=50) ** 3
    assert expit(scores + fit_intercept(scores, target)).mean() == pytest.approx(0.08, abs=1e-9)


@pytest.mark.parametrize("scale", [None, "global", "columns"])
@pytest.mark.parametrize("penalty", [0.003, 0.03, 0.3])
def test_intercept_is_not_penalised(scale, penalty):
    X, y, _, _ = unbalanced([60, 20, 10], 0.5)
    model = SparseLogisticClassifier(penalty, scale=scale).fit(X, y)
    np.testing.assert_allclose(expit(model.decision_function(X)).mean(axis=0), [6 / 9, 2 / 9, 1 / 9], atol=1e-9)


def test_coefficients_are_those_of_a_free_intercept():
    # before the intercept's penalty was made small beside λ, α made up for it
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 3))
    y = (X[:, 0] + rng.normal(size=120) > 1.8).astype(int)
    model = SparseLogisticClassifier(0.05, scale=None, tol=1e-8, max_iter=5000).fit(X, y)
    args = (X - X.mean(axis=0), 2 * y - 1, 0.05)
    bounds = [(0, None)] * 6 + [(None, None)]
    best = minimize(objective, np.zeros(7), args, bounds=bounds, options={"ftol": 1e-14, "gtol": 1e-9})
    np.testing.assert_allclose(model.coef_[0], best.x[:3] - best.x[3:6], atol=1e-3)
    np.testing.assert_allclose(model.intercept_[0], best.x[-1], atol=1e-3)


@pytest.mark.parametrize("factor", [1e-3, 100, 1e3, 1e6])
def test_without_scaling_the_unit_changes_only_the_penalty(factor):
    X, y, X_test, _ = unbalanced([60, 20, 10], 0.5)
    options = {"scale": None, "tol": 1e-7, "max_iter": 5000}
    a, b = (
        SparseLogisticClassifier(1e-3, **options).fit(X, y),
        SparseLogisticClassifier(factor * 1e-3, **options).fit(factor * X, y),
    )
    assert a.n_kept_ == b.n_kept_ > 0
    np.testing.assert_allclose(b.coef_ * factor, a.coef_, atol=1e-3)
    np.testing.assert_allclose(b.predict_proba(factor * X_test), a.predict_proba(X_test), atol=1e-4)


# powers of two: no number is rounded otherwise, so that no held-out image changes sides
@pytest.mark.parametrize("factor", [2.0**-10, 2.0**10])
def test_choice_of_the_penalty_follows_the_unit(factor):
    X, y, X_test, _ = unbalanced([60, 20, 10], 0.5)
    a, b = (SparseLogisticClassifier(scale=None, random_state=0).fit(x, y) for x in (X, factor * X))
    assert b.penalty_ == pytest.approx(factor * a.penalty_)
    assert b.n_kept_ == a.n_kept_
    np.testing.assert_allclose(b.predict_proba(factor * X_test), a.predict_proba(X_test), atol=1e-4)


@pytest.mark.parametrize("multinomial", [False, True])
@pytest.mark.parametrize("scale", [None, "columns"])
def test_where_nothing_is_kept_probabilities_are_the_shares_of_the_classes(multinomial, scale):
    X, y, X_test, _ = unbalanced([60, 20, 10], 0.5)
    model = SparseLogisticClassifier(10, scale=scale, multinomial=multinomial).fit(X, y)
    assert model.n_kept_ == 0
    np.testing.assert_allclose(model.predict_proba(X_test), np.tile([6 / 9, 2 / 9, 1 / 9], (len(X_test), 1)))
    two = SparseLogisticClassifier(10, scale=scale).fit(X[30:], np.minimum(y, 1)[30:])
    np.testing.assert_allclose(two.predict_proba(X_test), 0.5)


def test_choice_of_the_penalty_does_not_give_up_a_rare_class():
    X, y, X_test, y_test = unbalanced([190, 10], 0.5, seed=2)
    model = SparseLogisticClassifier(random_state=0).fit(X, y)
    strongest = SparseLogisticClassifier(model.penalties_[0]).fit(X, y)
    found, given_up = ((m.predict(X_test) == y_test)[y_test == 1].mean() for m in (model, strongest))
    assert found > 0.6 > given_up + 0.2
    # scores are means over the classes: calling everything negative is worth one half
    assert model.scores_[0] < 0.7


def test_the_result_does_not_depend_on_the_number_of_cores(monkeypatch):
    # threads would: liblinear has one random generator a process
    monkeypatch.setattr(sparse_logistic, "SERIAL", 0)
    X, y, _, _ = unbalanced([40] * 6, 0.5, test=1)
    one, *several = (SparseLogisticClassifier(0.001, n_jobs=n, random_state=0).fit(X, y) for n in (1, 2, 2))
    for model in several:
        np.testing.assert_array_equal(model.kept_, one.kept_)
        np.testing.assert_allclose(model.coef_, one.coef_, rtol=1e-9)


def test_a_last_fit_that_did_not_converge_is_said_once(similarities):
    X, y, _, _ = similarities
    with pytest.warns(ConvergenceWarning, match=r"3 of 3 problems did not converge in max_iter=2 ") as seen:
        SparseLogisticClassifier(0.001, max_iter=2).fit(X, y)
    assert len(seen) == 1
    with pytest.warns(ConvergenceWarning, match="the solver did not converge"):
        SparseLogisticClassifier(0.001, max_iter=2, multinomial=True).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SparseLogisticClassifier(0.02).fit(X, y)


def test_similarities_that_say_nothing_keep_no_image_and_give_the_shares_of_the_classes():
    model = SparseLogisticClassifier().fit(np.ones((12, 12)), [0, 1, 2, 2] * 3)
    assert model.n_kept_ == 0
    np.testing.assert_allclose(model.predict_proba(np.ones((1, 12))), [[0.25, 0.25, 0.5]], atol=1e-6)
