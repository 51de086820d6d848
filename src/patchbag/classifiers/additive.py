# SPDX-License-Identifier: BSD-3-Clause
"""Additive kernel machines at linear cost: addkPCA and a linear classifier in one estimator (liu2010 §7.4.3).

It is :class:`~patchbag.classifiers.linear.LinearClassifier` on embedded rows, with its probabilities and its choice of
C.  New rows are not embedded: scores come from tables or from fused products, whichever is faster for the number of
classes (:mod:`patchbag.embeddings.scores`), and rows that are sparse stay so.
"""

from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import _fit_context, clone
from sklearn.utils.validation import check_is_fitted

from patchbag.classifiers.linear import MAX_ITER, LinearClassifier
from patchbag.embeddings.additive import AdditiveKernelPCA
from patchbag.embeddings.scores import TABLE_CLASSES, additive_scores, score_tables
from patchbag.storage.declared import Declared, Part, floats


class AdditiveClassifier(LinearClassifier):
    """Linear classifier on explicit vectors of an additive kernel.

    Parameters
    ----------
    embedding : AdditiveKernelPCA, None for one of the χ² kernel
    model, C, folds, random_state : of :class:`LinearClassifier`

    Attributes
    ----------
    embedding_, coef_ (C, E), and what LinearClassifier has

    >>> AdditiveClassifier().fit(words, np.arange(120) % 2).predict(words).shape
    (120,)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{k: v for k, v in LinearClassifier._parameter_constraints.items() if k not in ("rows", "max_iter")},
        "embedding": [AdditiveKernelPCA, None],
    }
    rows = "vectors"
    max_iter = MAX_ITER

    _stored: ClassVar[dict[str, Declared]] = {
        "embedding_": Part("AdditiveKernelPCA", d="d", E="E"),
        "coef_": floats("machines", "E"),
        "means_": floats("C", "E", optional=True),
    }

    def __init__(
        self,
        embedding: AdditiveKernelPCA | None = None,
        *,
        model: str = "svm",
        C: float | str = "auto",
        folds: int | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.embedding = embedding
        self.model = model
        self.C = C
        self.folds = folds
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        self.embedding_ = clone(self.embedding or AdditiveKernelPCA(random_state=self.random_state))
        embedded = self.embedding_.fit_transform(X)
        super().fit(embedded.toarray() if sparse.issparse(embedded) else embedded, y)
        self.n_features_in_ = self.embedding_.n_features_in_
        self._tables: np.ndarray | None = None
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, C) scores, larger is surer; (n,) for two classes."""
        check_is_fitted(self, "coef_")
        rows = sparse.csr_array(self.embedding_._check(X, reset=False)).astype(self.coef_.dtype, copy=False)
        tables = getattr(self, "_tables", None)
        if tables is None and len(self.coef_) <= TABLE_CLASSES:
            tables = self._tables = score_tables(self.embedding_, self.coef_)
        scores = additive_scores(self.embedding_, self.coef_, rows, tables) + self.intercept_
        return scores if scores.shape[1] > 1 else scores[:, 0]

    def _distances(self, X: Any) -> np.ndarray:
        embedded = self.embedding_.transform(X)
        return super()._distances(embedded.toarray() if sparse.issparse(embedded) else embedded)
