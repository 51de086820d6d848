# SPDX-License-Identifier: BSD-3-Clause
r"""Image mixtures: every image as its own Gaussian mixture, adapted from the universal one.

MAP estimation with the universal model as prior (liu2010, eq. 4.6-4.8; liu2008).  From the image's statistics
:math:`S^0_i = \sum_t \gamma_i(x_t)`, :math:`S^1_i`, :math:`S^2_i` and the relevance factor :math:`\tau`

.. math::

    w_i &= \frac{S^0_i + \tau N w^u_i}{T + N\tau}, \qquad \mu_i = \frac{S^1_i + \tau\mu^u_i}{S^0_i + \tau}, \\
    \sigma_i^2 &= \frac{S^2_i + \tau(\sigma_i^{u\,2} + \mu_i^{u\,2})}{S^0_i + \tau} - \mu_i^2 .

Component i of every image corresponds to component i of every other: that is what one-to-one kernels live on.  The
variance is computed around the universal mean, where the difference of large numbers in (4.8) does not arise.

Limits.  :math:`\tau \to \infty` gives the universal model, :math:`\tau \to 0` one EM step of maximum likelihood; with
:math:`\tau = 0` a component that no descriptor belongs to keeps the universal Gaussian and gets weight zero.

Iterations.  One EM step needs only the statistics.  With more, responsibilities come from the image's own current model
(started at the universal model), so the descriptors are visited again: :func:`adapt_bags`.  The prior stays the
universal model.  The baseline that the papers compare with, and find worse, is in ``maximum_likelihood.py``.

Deviations and slips.  (4.6) adds :math:`\tau` to every count whatever the universal weight, so its limit is 1/N and not
the universal model that §4.3.2.2 speaks of; we put the universal weight there and keep (4.6) as
``weight_prior="uniform"``.  The poster's M-step for the universal variance misses the division of the first term that
the thesis has right (4.5).

Cost: a few passes over N × D numbers per image, beyond the statistics.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags, as_bags
from patchbag.mixture.parameters import GaussianParameters, check_parameters
from patchbag.mixture.statistics import Statistics, collect
from patchbag.parameters import POSITIVE, estimator, parameter
from patchbag.records import Records, as_floats, shared
from patchbag.runtime import parallel_map
from patchbag.storage.declared import Declared, Part, boolean, floats, stored
from patchbag.storage.registry import storable

# images adapted together: their temporaries stay in the cache
BLOCK_NUMBERS = 1 << 18
WEIGHT_TOLERANCE = 1e-3


@storable
@dataclass(frozen=True, repr=False)
class Mixtures(Records):
    """n Gaussian mixtures with diagonal covariances: one per image, all with K components in D dimensions.

    ``weights (n, K)``, ``means (n, K, D)``, ``variances (n, K, D)``; ``universal`` is the model they were adapted from.
    ``corresponding`` is False where component i of one image has nothing to do with component i of another.
    """

    weights: Any = stored(floats("n", "K", low=0))
    means: Any = stored(floats("n", "K", "D"))
    variances: Any = stored(floats("n", "K", "D", low=0))
    universal: GaussianParameters | None = shared(Part("GaussianParameters", optional=True, K="K", D="D"))
    corresponding: bool = shared(boolean(), True)

    @property
    def n_components(self) -> int:
        return int(self.means.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.means.shape[2])

    def check(self, like: Mixtures | None = None, what: str = "mixtures") -> Self:
        """Raise an error that names the image and the fault, or return self.

        Parameters
        ----------
        like : mixtures that these must match in K and D
        what : what the mixtures are called in the message
        """
        w, m, v = self.weights, self.means, self.variances
        if not all(hasattr(a, "shape") for a in (w, m, v)):
            raise TypeError(f"{what}: weights, means and variances must be arrays, got {type(w).__name__}")
        odd = [a.dtype for a in (w, m, v) if isinstance(a, np.ndarray) and a.dtype not in (np.float32, np.float64)]
        if odd:
            raise ValueError(f"{what}: weights, means and variances must be float32 or float64, got {odd[0]}")
        shapes = tuple(w.shape), tuple(m.shape), tuple(v.shape)
        if len(shapes[1]) != 3 or shapes[1] != shapes[2] or shapes[0] != shapes[1][:2]:
            raise ValueError(f"{what}: expected weights (n, K), means and variances (n, K, D), got shapes {shapes}")
        if like is not None and shapes[1][1:] != tuple(like.means.shape[1:]):
            raise ValueError(
                f"{what} have {shapes[1][1]} components in {shapes[1][2]} dimensions, the references have "
                f"{like.n_components} in {like.dimension}: adapt both from the same universal model"
            )
        if 0 in shapes[1]:
            raise ValueError(f"{what} are empty: means have shape {shapes[1]}")
        xp = array_namespace(w, m, v)
        faults = (
            ("a weight that is NaN or infinite", ~xp.isfinite(w)),
            ("a mean that is NaN or infinite", ~xp.isfinite(m)),
            ("a variance that is NaN or infinite", ~xp.isfinite(v)),
            ("a negative weight", w < 0),
            ("a variance that is not positive (raise variance_floor)", v <= 0),
            ("weights that do not sum to one", xp.abs(xp.sum(w, axis=1) - 1) > WEIGHT_TOLERANCE),
        )
        for fault, wrong in faults:
            if bool(xp.any(wrong)):
                where = _first(wrong)
                component = f", component {where[1]}" if len(where) > 1 else f": {float(xp.sum(w[int(where[0])])):.6g}"
                raise ValueError(f"{what}: image {where[0]} of {len(self)} has {fault}{component}")
        return self

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        Mixtures(values["weights"], values["means"], values["variances"]).check()
        return None


def _first(wrong: Any) -> tuple[int, ...]:
    """Index of the first True, on whatever device the array lies."""
    xp = array_namespace(wrong)
    index = int(xp.argmax(xp.reshape(xp.astype(wrong, xp.int8), (-1,))))
    return tuple(int(i) for i in np.unravel_index(index, tuple(wrong.shape)))


def adapt(
    s0: Any,
    s1: Any,
    s2: Any,
    universal: GaussianParameters,
    relevance: float = 10.0,
    variance_floor: float = 1e-3,
    weight_prior: str = "universal",
) -> tuple[Any, Any, Any]:
    """MAP weights, means and variances (4.6-4.8).

    Parameters
    ----------
    s0 : (..., K) soft counts; s1, s2 : (..., K, D) moments
    relevance : τ ≥ 0, may be infinite
    variance_floor : smallest variance, as a fraction of the universal variance of the same component and dimension
    weight_prior : ``"universal"``, or ``"uniform"`` for (4.6) to the letter

    Returns
    -------
    weights (..., K), means (..., K, D), variances (..., K, D), in the dtype of s1
    """
    xp = array_namespace(s0, s1, s2)
    where = {"dtype": s1.dtype, "device": device(s1)}
    w, mu, sigma2 = (xp.asarray(a, **where) for a in (universal.weights, universal.means, universal.variances))
    n_components = w.shape[0]
    prior = w if weight_prior == "universal" else xp.full_like(w, 1 / n_components)
    if relevance > 1e30:  # to the last digit the same as infinite, and more than float32 could multiply
        return tuple(xp.broadcast_to(a, s.shape) + xp.zeros_like(s) for a, s in ((prior, s0), (mu, s1), (sigma2, s2)))
    total = xp.sum(s0, axis=-1, keepdims=True)
    weights = (s0 + relevance * n_components * prior) / (total + relevance * n_components)
    mass = s0 + relevance
    # a component without descriptors and without prior stands at the universal Gaussian; so does one whose mass is so
    # small that its inverse would overflow
    known = mass >= xp.finfo(s1.dtype).smallest_normal
    count, share = s0[..., None], 1 / xp.where(known, mass, xp.ones_like(mass))[..., None]
    gap = (s1 - count * mu) * share
    prior_mass = xp.where(known, xp.full_like(mass, relevance), xp.ones_like(mass))[..., None]
    spread = (s2 - 2 * mu * s1 + count * mu * mu + prior_mass * sigma2) * share
    return weights, mu + gap, xp.maximum(spread - gap * gap, variance_floor * sigma2)


def adapt_statistics(statistics: Statistics, universal: GaussianParameters, **options: Any) -> Mixtures:
    """:func:`adapt` of every image, in blocks of images."""
    s0, s1, s2 = statistics.s0, statistics.s1, statistics.s2
    if len(s0.shape) != 2:
        raise ValueError(
            f"statistics have shape {tuple(s0.shape)}, with spatial cells; an image mixture is of the whole image: "
            "collect them without a pyramid, or take one cell"
        )
    if tuple(s1.shape[1:]) != universal.means.shape:
        raise ValueError(
            f"statistics of {s1.shape[1]} components in {s1.shape[2]} dimensions do not belong to a universal model of "
            f"{universal.n_components} components in {universal.dimension} dimensions"
        )
    xp = array_namespace(s0)
    negative = s0 < 0
    if bool(xp.any(negative)):
        image, component = _first(negative)
        raise ValueError(f"image {image} of {len(statistics)} has a negative count in component {component}")
    empty = xp.sum(s0, axis=1) <= 0
    if bool(xp.any(empty)):
        raise ValueError(
            f"image {_first(empty)[0]} of {len(statistics)} has no descriptors (its counts sum to zero); drop it"
        )
    step = max(1, BLOCK_NUMBERS // max(1, int(s1.shape[1] * s1.shape[2])))
    columns: list[list[Any]] = [[], [], []]
    for start in range(0, len(statistics), step):
        part = slice(start, min(start + step, len(statistics))), ...
        for column, a in zip(columns, adapt(s0[part], s1[part], s2[part], universal, **options)):
            column.append(a)
    if not columns[0]:
        return Mixtures(s0, s1, s2, universal=universal)
    weights, means, variances = (xp.concat(column, axis=0) for column in columns)
    return Mixtures(weights, means, variances, universal).check(what="adapted mixtures")


def adapt_bags(
    bags: Bags, universal: GaussianParameters, iterations: int = 1, n_jobs: int | None = None, **options: Any
) -> Mixtures:
    """MAP adaptation by ``iterations`` EM steps; from the second on, responsibilities come from the image's own model.

    Options are those of :func:`adapt`.
    """
    mixtures = adapt_statistics(collect(bags, universal, n_jobs=n_jobs), universal, **options)
    if iterations == 1:
        return mixtures
    work = partial(_adapt_further, universal=universal, iterations=iterations - 1, options=options)
    dtype = mixtures.means.dtype
    columns = zip(*parallel_map(work, zip(bags, mixtures.weights, mixtures.means, mixtures.variances), n_jobs))
    weights, means, variances = (np.stack(c).astype(dtype) for c in columns)
    return Mixtures(weights, means, variances, universal).check(what="adapted mixtures")


def _adapt_further(job: tuple[Any, ...], universal: GaussianParameters, iterations: int, options: Any) -> Any:
    values, parameters = job[0], job[1:]
    for _ in range(iterations):
        found = collect(Bags(values, [0, len(values)]), check_parameters(*parameters), n_jobs=1)
        parameters = adapt(found.s0[0], found.s1[0], found.s2[0], universal, **options)
    return parameters


@estimator
class MAPAdaptation(TransformerMixin, BaseEstimator):
    """Statistics (or bags) → Mixtures.

    Parameters
    ----------
    relevance : τ, how many descriptors the universal model's opinion is worth in each component
    iterations : EM steps; more than one needs ``Bags`` as input instead of ``Statistics``
    variance_floor : smallest variance, as a fraction of the universal one
    weight_prior : ``"universal"`` or ``"uniform"`` (4.6 to the letter)
    mixture : universal model with ``weights_``, ``means_``, ``variances_``; by default the one the statistics carry
    n_jobs : workers for bags, None for those of the context

    Attributes
    ----------
    universal_ : GaussianParameters

    >>> MAPAdaptation(relevance=10).fit_transform(statistics)
    Mixtures(weights=(120, 8), means=(120, 8, 4), variances=(120, 8, 4))
    """

    relevance: float = parameter(Interval(Real, 0, np.inf, closed="both"), default=10.0)
    _: KW_ONLY
    iterations: int = parameter(Interval(Integral, 1, 10_000, closed="both"), default=1)
    variance_floor: float = parameter(POSITIVE, default=1e-3)
    weight_prior: str = parameter(StrOptions({"universal", "uniform"}), default="universal")
    mixture: Any = parameter(BaseEstimator, None, default=None)
    n_jobs: int | None = parameter(Integral, None, default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "universal_": Part("GaussianParameters"),
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        if self.mixture is not None:
            self.universal_ = check_parameters(self.mixture.weights_, self.mixture.means_, self.mixture.variances_)
        elif getattr(X, "universal", None) is not None:
            self.universal_ = X.universal
        else:
            raise ValueError(
                f"no universal model: these {type(X).__name__} do not carry one; collect statistics with "
                "UniversalStatistics, or pass MAPAdaptation(mixture=a fitted UniversalMixture)"
            )
        return self

    def transform(self, X: Any) -> Mixtures:
        check_is_fitted(self, "universal_")
        options = {name: getattr(self, name) for name in ("relevance", "variance_floor", "weight_prior")}
        if isinstance(X, Statistics):
            if self.iterations > 1:
                raise ValueError(
                    f"{self.iterations} EM iterations need the descriptors, and statistics no longer have them: "
                    "pass Bags to a MAPAdaptation(mixture=...), or use iterations=1"
                )
            if X.universal is not None and X.universal != self.universal_:
                raise ValueError(
                    "these statistics were collected under another universal mixture than the one to adapt; collect "
                    "them with the same UniversalStatistics"
                )
            X = replace(X, **{name: as_floats(a) for name, a in X.arrays().items()})
            return adapt_statistics(X, self.universal_, **options)
        return adapt_bags(as_bags(X), self.universal_, self.iterations, self.n_jobs, **options)
