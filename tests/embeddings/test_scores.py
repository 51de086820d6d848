"""Scores of linear classifiers on embedded rows: tables and fused products against embedding and multiplying."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from patchbag import AdditiveClassifier, AdditiveKernelPCA, LinearClassifier
from patchbag.embeddings.scores import TABLE_CLASSES, additive_scores, score_tables


@pytest.fixture(scope="module")
def histograms():
    rng = np.random.default_rng(0)
    X = rng.gamma(0.3, size=(200, 40)) * (rng.random((200, 40)) < 0.5)
    X[:, 3] = 0
    return X / np.maximum(X.sum(axis=1, keepdims=True), 1e-12)


@pytest.mark.parametrize("interpolation", ["linear", "constant"])
@pytest.mark.parametrize("n_classes", [1, 3, TABLE_CLASSES + 1])
def test_both_ways_give_the_scores_of_embedding_and_multiplying(histograms, interpolation, n_classes):
    embedding = AdditiveKernelPCA(interpolation=interpolation, random_state=0).fit(histograms[:100])
    coef = np.random.default_rng(1).normal(size=(n_classes, embedding.functions_.sum()))
    beyond = 50 * histograms  # past the last point of the tables too
    expected = embedding.transform(beyond) @ coef.T
    rows = sparse.csr_array(beyond)
    np.testing.assert_allclose(additive_scores(embedding, coef, rows), expected, rtol=1e-9, atol=1e-9)
    tables = score_tables(embedding, coef)
    assert tables.shape == (40, 64, n_classes)
    np.testing.assert_allclose(additive_scores(embedding, coef, rows, tables), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, TABLE_CLASSES + 4])
def test_the_classifier_is_a_linear_one_on_embedded_rows(histograms, n_classes):
    y = np.arange(200) % n_classes
    X = histograms.copy()
    X[np.arange(200), y] += 0.5
    model = AdditiveClassifier(random_state=0).fit(sparse.csr_array(X), y)
    embedding = AdditiveKernelPCA(random_state=0).fit(X)
    linear = LinearClassifier(random_state=0).fit(embedding.transform(X), y)
    expected = linear.decision_function(embedding.transform(X))
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-5)
    np.testing.assert_allclose(
        model.predict_proba(sparse.csr_array(X)), linear.predict_proba(embedding.transform(X)), atol=1e-5
    )
    assert (model.predict(X) == y).mean() > 0.95
    assert model.n_features_in_ == 40


def test_numbers_far_beyond_the_training_values_are_no_index(histograms):
    """A table must not be read out of its bounds, whatever is asked."""
    embedding = AdditiveKernelPCA(random_state=0).fit(histograms)
    far = np.full((1, 40), 1e30)
    assert np.isfinite(embedding.transform(far)).all()
    coef = np.ones((1, embedding.functions_.sum()))
    assert np.isfinite(additive_scores(embedding, coef, sparse.csr_array(far))).all()
