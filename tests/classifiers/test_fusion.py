import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import LinearSVC

from patchbag.bags import Bags
from patchbag.channels import Channels
from patchbag.classifiers.fusion import LateFusionClassifier


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 30)
    noise = rng.normal(size=(2, 90, 4))
    # each channel tells one class from the rest
    noise[0, y == "a", 0] += 3
    noise[1, y == "b", 1] += 3
    return Channels(orh=noise[0], col=noise[1]), y


def test_probabilities_are_the_mean_of_the_branches(data):
    X, y = data
    fusion = LateFusionClassifier([("orh", LogisticRegression()), ("col", LogisticRegression())]).fit(X, y)
    alone = [LogisticRegression().fit(X[name], y).predict_proba(X[name]) for name in ("orh", "col")]
    np.testing.assert_allclose(fusion.predict_proba(X), (alone[0] + alone[1]) / 2)
    np.testing.assert_array_equal(fusion.predict(X), fusion.classes_[(alone[0] + alone[1]).argmax(axis=1)])
    weighted = LateFusionClassifier(fusion.branches, weights=[3, 1]).fit(X, y)
    np.testing.assert_allclose(weighted.predict_proba(X), 0.75 * alone[0] + 0.25 * alone[1])


def test_two_channels_together_are_better_than_either(data):
    X, y = data
    both = LateFusionClassifier([("orh", LogisticRegression()), ("col", LogisticRegression())])
    scores = [cross_val_score(both, X, y).mean()]
    scores += [cross_val_score(LogisticRegression(), X[name], y).mean() for name in X.names]
    assert scores[0] > max(scores[1:]) + 0.1


def test_decision_values_are_averaged_where_a_branch_has_no_probabilities(data):
    X, y = data
    fusion = LateFusionClassifier([("orh", LinearSVC()), ("col", LogisticRegression())]).fit(X, y)
    assert not hasattr(fusion, "predict_proba")
    expected = [b.decision_function(X[name]) for name, b in fusion.branches_]
    np.testing.assert_allclose(fusion.decision_function(X), np.mean(expected, axis=0))
    two = y != "c"
    binary = LateFusionClassifier([("orh", LinearSVC()), ("col", LinearSVC())]).fit(X[two], y[two])
    assert (binary.predict(X[two]) == y[two]).mean() > 0.9


def test_binary_probabilities_decide_at_one_half(data):
    X, y = data
    two = y != "c"
    fusion = LateFusionClassifier([("orh", LogisticRegression()), ("col", LogisticRegression())]).fit(X[two], y[two])
    positive = fusion.decision_function(X[two]) > 0
    np.testing.assert_array_equal(fusion.predict(X[two]), np.where(positive, "b", "a"))


def test_parameters_of_branches_can_be_searched(data):
    X, y = data
    fusion = LateFusionClassifier([("orh", LogisticRegression()), ("col", LogisticRegression())])
    search = GridSearchCV(fusion, {"orh__C": [1e-4, 1.0], "weights": [None, [1, 0]]}, cv=3).fit(X, y)
    assert search.best_params_ == {"orh__C": 1.0, "weights": None}
    assert clone(fusion).get_params()["orh__C"] == 1.0


def test_one_dataset_goes_to_every_branch(data):
    X, y = data
    fusion = LateFusionClassifier([("weak", LogisticRegression(C=0.1)), ("strong", LogisticRegression(C=9))]).fit(
        X["orh"], y
    )
    expected = [b.predict_proba(X["orh"]) for _, b in fusion.branches_]
    np.testing.assert_allclose(fusion.predict_proba(X["orh"]), np.mean(expected, axis=0))


def test_channels_cut_arrays_bags_and_lists_together():
    bags = Bags.from_list([np.full((i + 1, 2), i) for i in range(5)])
    channels = Channels({"bags": bags}, rows=np.arange(10).reshape(5, 2), paths=list("vwxyz"))
    cut = channels[np.array([4, 1])]
    assert cut.shape == (2,)
    np.testing.assert_array_equal(cut["bags"].sizes, [5, 2])
    np.testing.assert_array_equal(cut["rows"], [[8, 9], [2, 3]])
    assert cut["paths"] == ["z", "w"]
    assert channels[1]["paths"] == ["w"]
    assert channels[np.array([True, False, False, False, True])]["paths"] == ["v", "z"]
    assert len(list(channels)) == 5


def test_wrong_use_is_named(data):
    X, y = data
    with pytest.raises(ValueError, match=r"same images, got \{'a': 3, 'b': 2\}"):
        Channels(a=np.zeros(3), b=np.zeros(2))
    with pytest.raises(KeyError, match="no channel 'gist'; there are orh, col"):
        LateFusionClassifier([("gist", LogisticRegression())]).fit(X, y)
    with pytest.raises(ValueError, match="at least one branch"):
        LateFusionClassifier([]).fit(X, y)
    with pytest.raises(ValueError, match="weights must be 1 numbers"):
        LateFusionClassifier([("orh", LogisticRegression())], weights=[1, 2]).fit(X, y)
    with pytest.raises(ValueError, match="'scores' parameter"):
        LateFusionClassifier([("orh", LogisticRegression())], scores="votes").fit(X, y)
