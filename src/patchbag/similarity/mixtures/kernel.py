# SPDX-License-Identifier: BSD-3-Clause
r"""Kernels between image mixtures: the probability product kernel (PPK) and the Kullback-Leibler kernel (KLK).

.. math::

    K^\rho_{ppk}(p, q) = \int p^\rho q^\rho \quad (4.9), \qquad
    K_{klk}(p, q) = \exp\left(-\gamma\,(KL(p\|q) + KL(q\|p))\right) \quad (2.21, 4.25)

Between mixtures neither has a closed form.  The estimates on offer (liu2010, chapter 4):

* ``"one-to-one"``: components correspond because both mixtures were adapted from one universal model (4.13, 4.24); see
  ``one_to_one``.  Linear in the number of components, and as good as the slow ones on adapted mixtures.
* ``"one-to-many"`` (PPK), ``"matched"``, ``"variational"``, and for KL ``"unscented"`` and ``"monte-carlo"``: for any
  two mixtures; see ``matching`` and ``point_estimates``.  Quadratic in the number of components.

γ is by default the inverse of the mean SKL of a subset of the references (§4.3.1).

Definiteness.  The one-to-one PPK is positive semidefinite (a sum of products of kernels); KLK is not in general, and at
small relevance factors far from it (least eigenvalue -1.9 on Scene-15 at τ = 10), nor is the matched PPK: an SVM needs
``DefiniteKernel`` between, a linear classifier on rows of similarities (the papers' way) does not.

Deviation: a matched PPK, which the thesis only suggests, is averaged over both directions to be symmetric.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from patchbag.mixture.adaptation import Mixtures
from patchbag.similarity.mixtures import matching as pairs
from patchbag.similarity.mixtures.checks import check_mixtures, check_pair, check_precision, log_self_products
from patchbag.similarity.mixtures.gaussians import check_rho
from patchbag.similarity.mixtures.one_to_one import product_one_to_one, symmetric_kl_one_to_one
from patchbag.similarity.mixtures.point_estimates import kl_monte_carlo, kl_unscented, random_seed

PRODUCT_MATCHINGS = ("one-to-one", "one-to-many", "matched", "variational")
DIVERGENCE_MATCHINGS = ("one-to-one", "matched", "variational", "unscented", "monte-carlo")


def product_kernel(
    P: Mixtures,
    Q: Mixtures,
    rho: float = 0.5,
    matching: str = "one-to-one",
    dtype: Any = np.float32,
    log_norms: pairs.LogNorms = None,
    check: bool = True,
) -> Any:
    """PPK of every pair: ``(n, m)``; matching is one of ``PRODUCT_MATCHINGS``.

    Parameters
    ----------
    log_norms : logarithms of norms (n,) of P and (m,) of Q to divide by, see ``log_product_norms``; where ρ ≠ ½ the
        kernel scales with variances to the power of the dimension, and only the quotient may fit into a float
    check : P and Q are checked; False if that was done
    """
    if matching not in PRODUCT_MATCHINGS:
        raise ValueError(f"matching of a product kernel must be one of {PRODUCT_MATCHINGS}, got {matching!r}")
    if check:
        check_pair(P, Q, one_to_one=matching == "one-to-one")
    if matching == "one-to-one":
        return product_one_to_one(P, Q, rho, dtype, log_norms, check=False)
    if matching == "one-to-many":
        return pairs.product_one_to_many(P, Q, rho, dtype, log_norms, check=False)
    if matching == "matched":
        swapped = None if log_norms is None else log_norms[::-1]
        forward = pairs.product_matched(P, Q, rho, dtype, log_norms, check=False)
        return (forward + pairs.product_matched(Q, P, rho, dtype, swapped, check=False).T) / 2
    if rho != 0.5:
        raise ValueError(f"the variational bound (4.12) is of the Bhattacharyya kernel, rho = 0.5; got rho = {rho}")
    return pairs.bhattacharyya_bound(P, Q, dtype, log_norms, check=False)


def symmetric_kl(
    P: Mixtures,
    Q: Mixtures,
    matching: str = "one-to-one",
    dtype: Any = np.float32,
    n_samples: int = 1000,
    random_state: Any = None,
    check: bool = True,
) -> Any:
    """SKL of every pair: ``(n, m)``; matching is one of ``DIVERGENCE_MATCHINGS``.

    ``check=False`` takes P and Q as they are; Monte Carlo uses one seed for both directions.
    """
    if matching not in DIVERGENCE_MATCHINGS:
        raise ValueError(f"matching of a KL divergence must be one of {DIVERGENCE_MATCHINGS}, got {matching!r}")
    if check:
        check_pair(P, Q, one_to_one=matching == "one-to-one")
    if matching == "one-to-one":
        return symmetric_kl_one_to_one(P, Q, dtype, check=False)
    if matching == "monte-carlo":
        seed = random_seed(random_state)
        forward, backward = (kl_monte_carlo(*pq, n_samples, seed, dtype, check=False) for pq in ((P, Q), (Q, P)))
        return forward + backward.T
    estimates = {"matched": pairs.kl_matched, "variational": pairs.kl_variational, "unscented": kl_unscented}
    return estimates[matching](P, Q, dtype, check=False) + estimates[matching](Q, P, dtype, check=False).T


def log_product_norms(X: Mixtures, rho: float = 0.5, matching: str = "one-to-one") -> Any:
    """½ ln K(p, p) of every mixture: ``(n,)``, float64."""
    logs = 0.5 * log_self_products(X, rho)
    if matching != "one-to-one":
        # relative to the one-to-one norm, which has the same scale, nothing under- or overflows
        for i in range(len(X)):
            own = logs[i : i + 1], logs[i : i + 1]
            logs[i] += 0.5 * np.log(product_kernel(X[i], X[i], rho, matching, np.float64, own, check=False)[0, 0])
    return logs


class MixtureKernel(TransformerMixin, BaseEstimator):
    """Mixtures → rows of similarities to the training mixtures, for a linear classifier or a precomputed kernel.

    Parameters
    ----------
    kernel : ``"ppk"`` (probability product) or ``"klk"`` (exponential of the symmetric KL divergence)
    matching : how components are paired; see ``PRODUCT_MATCHINGS`` and ``DIVERGENCE_MATCHINGS``
    rho : exponent of the PPK, 1/2 is Bhattacharyya
    gamma : of the KLK; by default 1 / mean SKL between ``gamma_samples`` of the training mixtures
    gamma_samples : at least 2; by default 256 one to one, 32 where components are matched, which takes K times as long
    normalize : divide by the root of the self-similarities, so that K(p, p) = 1 (PPK)
    n_samples : points a mixture of the Monte Carlo estimate
    precision : ``"float32"`` or ``"float64"``, of computation and result
    random_state : seed of the subset for γ and of Monte Carlo

    Attributes
    ----------
    references_ : the training mixtures
    gamma_ : float, KLK only
    seed_ : of Monte Carlo, the same for all mixtures; reference_log_norms_ : of the normalised PPK

    >>> kernel = MixtureKernel("klk").fit(mixtures)
    >>> kernel.transform(mixtures[:10]).shape
    (10, 120)
    """

    def __init__(
        self,
        kernel: str = "ppk",
        *,
        matching: str = "one-to-one",
        rho: float = 0.5,
        gamma: float | None = None,
        gamma_samples: int | None = None,
        normalize: bool = False,
        n_samples: int = 1000,
        precision: str = "float32",
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.matching = matching
        self.rho = rho
        self.gamma = gamma
        self.gamma_samples = gamma_samples
        self.normalize = normalize
        self.n_samples = n_samples
        self.precision = precision
        self.random_state = random_state

    def fit(self, X: Mixtures, y: Any = None) -> Self:
        matchings = {"ppk": PRODUCT_MATCHINGS, "klk": DIVERGENCE_MATCHINGS}
        if self.kernel not in matchings:
            raise ValueError(f"kernel must be 'ppk' or 'klk', got {self.kernel!r}")
        if self.matching not in matchings[self.kernel]:
            raise ValueError(
                f"matching of kernel {self.kernel!r} must be one of {matchings[self.kernel]}, got {self.matching!r}"
            )
        check_precision(self.precision)
        if self.gamma_samples is not None and self.gamma_samples < 2:
            raise ValueError(f"gamma_samples must be at least 2, got {self.gamma_samples!r}")
        if self.gamma is not None and not 0 < self.gamma < np.inf:
            raise ValueError(f"gamma must be a positive number or None, got {self.gamma!r}")
        check_rho(self.rho)
        self.references_ = check_mixtures(X, one_to_one=self.matching == "one-to-one")
        self.seed_ = random_seed(self.random_state) if self.matching == "monte-carlo" else None
        if self.kernel == "klk":
            self.gamma_ = self._choose_gamma() if self.gamma is None else float(self.gamma)
        elif self.normalize:
            self.reference_log_norms_ = log_product_norms(self.references_, self.rho, self.matching)
        return self

    def transform(self, X: Mixtures) -> Any:
        """Similarities ``(n, number of references)``."""
        check_is_fitted(self, "references_")
        check_mixtures(X, self.references_, one_to_one=self.matching == "one-to-one")
        dtype = np.dtype(self.precision)
        if self.kernel == "klk":
            xp = array_namespace(X.means)
            return xp.exp(-self.gamma_ * self._divergence(X, self.references_))
        log_norms = None
        if self.normalize:
            log_norms = log_product_norms(X, self.rho, self.matching), self.reference_log_norms_
        return product_kernel(X, self.references_, self.rho, self.matching, dtype, log_norms, check=False)

    def _divergence(self, P: Mixtures, Q: Mixtures) -> Any:
        return symmetric_kl(P, Q, self.matching, np.dtype(self.precision), self.n_samples, self.seed_, check=False)

    def _choose_gamma(self) -> float:
        random, n = check_random_state(self.random_state), len(self.references_)
        if n < 2:
            raise ValueError("gamma is chosen from the divergences between training mixtures: need two, or give gamma")
        size = min(n, self.gamma_samples or (256 if self.matching == "one-to-one" else 32))
        sample = self.references_[np.sort(random.choice(n, size, replace=False))]
        divergence = self._divergence(sample, sample)
        xp = array_namespace(divergence)
        own = xp.sum(xp.linalg.diagonal(divergence))
        mean = float(xp.sum(divergence) - own) / (size * (size - 1))
        rounding = 10 * abs(float(own)) / size  # the divergence of a mixture from itself is nothing else
        if not mean > rounding:
            why = "all training mixtures are the same" if mean >= 0 else "this estimate of KL can be negative"
            raise ValueError(
                f"the mean SKL between training mixtures is {mean:.3g} ({why}): lower the relevance factor, or give "
                "gamma"
            )
        return 1 / mean
