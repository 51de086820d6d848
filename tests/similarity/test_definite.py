import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from patchbag.similarity.definite import DefiniteKernel, clip_eigenvalues, definiteness


@pytest.fixture
def indefinite():
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    return (vectors * [-1.9, -0.5, 0.01, 0.5, 1, 2, 3, 10]) @ vectors.T


def test_report_says_how_far_from_definite(indefinite):
    found = definiteness(indefinite)
    assert not found.definite
    assert found.smallest == pytest.approx(-1.9)
    assert found.n_negative == 2
    assert found.negative_mass == pytest.approx(2.4 / 18.91)
    assert "is not positive semidefinite: eigenvalues from -1.9 to 10, 2 of them negative" in str(found)
    assert definiteness(np.eye(3)).definite


def test_rounding_is_not_taken_for_indefiniteness():
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    assert definiteness(x @ x.T).definite


def test_clipping_gives_the_nearest_semidefinite_matrix(indefinite):
    repaired, projection = clip_eigenvalues(indefinite)
    np.testing.assert_allclose(np.linalg.eigvalsh(repaired), [0, 0, 0.01, 0.5, 1, 2, 3, 10], atol=1e-12)
    np.testing.assert_allclose(indefinite @ projection, repaired, atol=1e-12)
    assert np.linalg.norm(repaired - indefinite) == pytest.approx(np.hypot(1.9, 0.5))


def test_rows_of_new_samples_are_repaired_as_the_training_rows_are(indefinite):
    model = DefiniteKernel("clip").fit(indefinite)
    training = model.transform(indefinite)
    np.testing.assert_allclose(training, clip_eigenvalues(indefinite)[0], atol=1e-12)
    np.testing.assert_allclose(model.transform(indefinite[2:4]), training[2:4], atol=1e-12)


def test_user_is_told_and_nothing_is_changed_silently(indefinite):
    with pytest.raises(ValueError, match=r"eigenvalues from -1.9 to 10.*DefiniteKernel\('clip'\)"):
        DefiniteKernel().fit(indefinite)
    with pytest.warns(UserWarning, match="not positive semidefinite"):
        model = DefiniteKernel("warn").fit(indefinite)
    np.testing.assert_array_equal(model.transform(indefinite), indefinite)
    definite = np.eye(8) + 0.1
    np.testing.assert_array_equal(DefiniteKernel("clip").fit(definite).transform(definite), definite)


def test_wrong_input_is_named(indefinite):
    assert clone(DefiniteKernel("clip")).get_params()["action"] == "clip"
    with pytest.raises(ValueError, match=r"square, got shape \(3, 8\)"):
        DefiniteKernel().fit(indefinite[:3])
    with pytest.raises(ValueError, match="not symmetric"):
        DefiniteKernel().fit(np.triu(np.ones((4, 4))))
    with pytest.raises(ValueError, match="similarities to the 8 training samples, got 5 columns"):
        DefiniteKernel("clip").fit(indefinite).transform(np.zeros((2, 5)))
    with pytest.raises(ValueError, match="The 'action' parameter of DefiniteKernel must be"):
        DefiniteKernel("fix").fit(indefinite)


def test_a_grid_search_cuts_rows_and_columns_of_the_gram_matrix():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3)) + 2 * (np.arange(30) % 2)[:, None]
    pipeline = make_pipeline(DefiniteKernel("clip"), SVC(kernel="precomputed"))
    search = GridSearchCV(pipeline, {"svc__C": [1, 10]}, cv=3, error_score="raise")
    assert search.fit(x @ x.T, np.arange(30) % 2).best_score_ > 0.8
