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
small relevance factors far from it, nor is the matched PPK: an SVM needs ``DefiniteKernel`` between, a linear
classifier on rows of similarities (the papers' way) does not.

Deviation: a matched PPK, which the thesis only suggests, is averaged over both directions to be symmetric.
"""

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from sklearn.utils._param_validation import StrOptions

from patchbag.device import follow, like, to_host
from patchbag.mixture.adaptation import Mixtures
from patchbag.parameters import ONE_OR_MORE, POSITIVE, TWO_OR_MORE, estimator, parameter
from patchbag.runtime import check_random_state
from patchbag.similarity.base import MixtureSimilarity
from patchbag.similarity.mixtures import matching as pairs
from patchbag.similarity.mixtures.one_to_one import product_one_to_one, symmetric_kl_one_to_one
from patchbag.similarity.mixtures.point_estimates import kl_monte_carlo, kl_unscented, random_seed
from patchbag.storage.declared import Declared, floats, integer, real

PRODUCT_MATCHINGS = ("one-to-one", "one-to-many", "matched", "variational")
DIVERGENCE_MATCHINGS = ("one-to-one", "matched", "variational", "unscented", "monte-carlo")
# rows of a kernel looked at together, so that what is found of each entry takes little memory
RANGE_ROWS = 1024


def product_kernel(
    P: Mixtures,
    Q: Mixtures,
    rho: float = 0.5,
    matching: str = "one-to-one",
    dtype: Any = np.float32,
    log_norms: pairs.LogNorms = None,
) -> Any:
    """PPK of every pair: ``(n, m)``; matching is one of ``PRODUCT_MATCHINGS``, "variational" for rho = 0.5 only.

    ``log_norms`` are logarithms of norms (n,) of P and (m,) of Q to divide by, see ``log_product_norms``; where ρ ≠ ½
    the kernel scales with variances to the power of the dimension, and only the quotient may fit into a float.
    """
    if matching == "one-to-one":
        return product_one_to_one(P, Q, rho, dtype, log_norms)
    if matching == "one-to-many":
        return pairs.product_one_to_many(P, Q, rho, dtype, log_norms)
    if matching == "variational":
        return pairs.bhattacharyya_bound(P, Q, dtype, log_norms)
    swapped = None if log_norms is None else log_norms[::-1]
    forward = pairs.product_matched(P, Q, rho, dtype, log_norms)
    return (forward + pairs.product_matched(Q, P, rho, dtype, swapped).T) / 2


def symmetric_kl(
    P: Mixtures,
    Q: Mixtures,
    matching: str = "one-to-one",
    dtype: Any = np.float32,
    n_samples: int = 1000,
    random_state: Any = None,
) -> Any:
    """SKL of every pair: ``(n, m)``; matching is one of ``DIVERGENCE_MATCHINGS``.

    Monte Carlo uses one seed for both directions.
    """
    if matching == "one-to-one":
        return symmetric_kl_one_to_one(P, Q, dtype)
    if matching == "monte-carlo":
        seed = random_seed(random_state)
        return kl_monte_carlo(P, Q, n_samples, seed, dtype) + kl_monte_carlo(Q, P, n_samples, seed, dtype).T
    estimate = {"matched": pairs.kl_matched, "variational": pairs.kl_variational, "unscented": kl_unscented}[matching]
    return estimate(P, Q, dtype) + estimate(Q, P, dtype).T


def log_self_products(X: Mixtures, rho: float = 0.5) -> Any:
    """ln Σ_i α_i² K^ρ(p_i, p_i) of every mixture, the diagonal of the one-to-one PPK: ``(n,)``, float64."""
    xp = array_namespace(X.weights, X.variances)
    # ∫ N^{2ρ} = (2π σ²)^{½ - ρ} (2ρ)^{-½} per dimension
    logs = (0.5 - rho) * xp.log(2 * np.pi * xp.astype(X.variances, xp.float64)) - 0.5 * float(np.log(2 * rho))
    with np.errstate(divide="ignore"):  # a component of weight zero adds nothing
        terms = 2 * xp.log(xp.astype(X.weights, xp.float64)) + xp.sum(logs, axis=-1)
    best = xp.max(terms, axis=1, keepdims=True)
    return xp.log(xp.sum(xp.exp(terms - best), axis=1)) + best[:, 0]


def log_product_norms(X: Mixtures, rho: float = 0.5, matching: str = "one-to-one") -> Any:
    """½ ln K(p, p) of every mixture: ``(n,)``, float64."""
    logs = 0.5 * log_self_products(X, rho)
    if matching != "one-to-one":
        # relative to the one-to-one norm, which has the same scale, nothing under- or overflows
        for i in range(len(X)):
            own = logs[i : i + 1], logs[i : i + 1]
            logs[i] += 0.5 * np.log(product_kernel(X[i], X[i], rho, matching, np.float64, own)[0, 0])
    return logs


def check_range(K: Any, P: Mixtures, Q: Mixtures, rho: float) -> Any:
    """K if its dtype can hold it; for ρ ≠ ½ a product kernel scales with the variances' product over D dimensions."""
    xp = array_namespace(K)
    low = float(np.log(np.finfo(str(K.dtype).rpartition(".")[2]).smallest_subnormal))
    n = K.shape[0]
    parts = [K[start : min(start + RANGE_ROWS, n), ...] for start in range(0, n, RANGE_ROWS)]
    # K(p, q)² ≤ K(p, p) K(q, q): zeros of mixtures that are merely far apart are no fault of the scale
    largest = (float(xp.max(log_self_products(X, rho))) for X in (P, Q))
    if not all(bool(xp.all(xp.isfinite(part))) for part in parts):
        fault = "overflows"
    elif not any(bool(xp.any(part != 0)) for part in parts) and 0.5 * sum(largest) < low:
        fault = "is below the smallest number"
    else:
        return K
    raise ValueError(
        f"the product kernel with rho = {rho} {fault} in {K.dtype} at the scale of these variances: "
        "use normalize=True or precision='float64', or rho = 0.5, which is free of scale"
    )


@estimator
class MixtureKernel(MixtureSimilarity):
    """Mixtures → rows of similarities to the training mixtures, for a linear classifier or a precomputed kernel.

    Parameters
    ----------
    kernel : ``"ppk"`` (probability product) or ``"klk"`` (exponential of the symmetric KL divergence)
    matching : how components are paired; see ``PRODUCT_MATCHINGS`` and ``DIVERGENCE_MATCHINGS``
    rho : exponent of the PPK, 1/2 is Bhattacharyya
    gamma : of the KLK; by default 1 / mean SKL between ``gamma_samples`` of the training mixtures
    gamma_samples : at least 2; by default 256 one to one, 32 where components are matched, which takes K times as long
    normalize : divide by the root of the self-similarities, so that K(p, p) = 1 (PPK)
    n_samples : points per mixture of the Monte Carlo estimate
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

    kernel: str = parameter(StrOptions({"ppk", "klk"}), default="ppk")
    _: KW_ONLY
    matching: str = parameter(StrOptions({*PRODUCT_MATCHINGS, *DIVERGENCE_MATCHINGS}), default="one-to-one")
    rho: float = parameter(POSITIVE, default=0.5)
    gamma: float | None = parameter(POSITIVE, None, default=None)
    gamma_samples: int | None = parameter(TWO_OR_MORE, None, default=None)
    normalize: bool = parameter("boolean", default=False)
    n_samples: int = parameter(ONE_OR_MORE, default=1000)
    precision: str = parameter(StrOptions({"float32", "float64"}), default="float32")
    random_state: Any = parameter("random_state", default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "seed_": integer(low=0, optional=True),
        "gamma_": real(low=0, optional=True),
        "reference_log_norms_": floats("n", optional=True),
    }

    @property
    def follows(self) -> bool:
        return self.matching == "one-to-one"

    def _fit(self, X: Mixtures) -> None:
        matchings = PRODUCT_MATCHINGS if self.kernel == "ppk" else DIVERGENCE_MATCHINGS
        if self.matching not in matchings:
            raise ValueError(f"matching of kernel {self.kernel!r} must be one of {matchings}, got {self.matching!r}")
        if self.kernel == "ppk" and self.matching == "variational" and self.rho != 0.5:
            raise ValueError(f"the variational bound (4.12) is of Bhattacharyya, rho = 0.5; got rho = {self.rho}")
        super()._fit(X)
        self.seed_ = random_seed(self.random_state) if self.matching == "monte-carlo" else None
        if self.kernel == "klk":
            self.gamma_ = self._choose_gamma() if self.gamma is None else float(self.gamma)
        elif self.normalize:
            self.reference_log_norms_ = to_host(log_product_norms(X, self.rho, self.matching))

    def _compare(self, X: Mixtures) -> Any:
        references = follow(self.references_, X.means)
        if self.kernel == "klk":
            return array_namespace(X.means).exp(-self.gamma_ * self._divergence(X, references))
        norms = None
        if self.normalize:
            own = log_product_norms(X, self.rho, self.matching)
            norms = own, like(self.reference_log_norms_, own)
        found = product_kernel(X, references, self.rho, self.matching, np.dtype(self.precision), norms)
        return found if self.normalize else check_range(found, X, references, self.rho)

    def _divergence(self, P: Mixtures, Q: Mixtures) -> Any:
        return symmetric_kl(P, Q, self.matching, np.dtype(self.precision), self.n_samples, self.seed_)

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

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        klk, sampled = values["kernel"] == "klk", values["matching"] == "monte-carlo"
        needed = {"gamma_": klk, "reference_log_norms_": not klk and values["normalize"], "seed_": sampled}
        missing = [name for name, wanted in needed.items() if wanted and values.get(name) is None]
        return f"its {missing[0]} is missing" if missing else None
