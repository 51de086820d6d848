# SPDX-License-Identifier: BSD-3-Clause
r"""Gaussian processes past a few thousand images: inducing images (Nyström, FITC).

The n × n covariance is replaced by its Nyström approximation through m inducing images u (Snelson & Ghahramani 2006,
which kapoor2010 §6.1 points to)::

    Q = K_nu K_uu^-1 K_un,    A = Q + Lambda,    Lambda = sigma^2 I                    "nystroem"
                                                 Lambda = diag(K - Q) + sigma^2 I      "fitc"

so that A^-1 and log|A| need only m × m factors (Woodbury): from K_nu and the diagonal of K, O(n m²) time and O(n m)
memory, and still one factor serves all classes.  ``GaussianProcessClassifier`` is given all of K: with k kernels it
holds 8 k n² bytes and reads them a few times, O(k n²), in place of factorising in O(n³).
With V = L_uu^-1 K_un and B = I + V Lambda^-1 V'::

    mean     = k_u(x)' L_uu^-T B^-1 V Lambda^-1 T
    variance = k(x, x) - |L_uu^-1 k_u|² + |L_B^-1 L_uu^-1 k_u|²
    log p(T) = -1/2 tr(T' A^-1 T) - C/2 (log|B| + sum log Lambda) - nC/2 log(2 pi)

Both predict with FITC's variance, which falls back to the prior variance far from the inducing images.  With m = n both
equal the exact process.

Inducing images are chosen by pivoted Cholesky, which takes the image with the largest unexplained variance next (O(n
m²)). The error is reported, not hidden: ``trace_error`` is tr(K - Q) / tr(K), the share of the prior variance that
the inducing images do not explain, exact for all n images.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from patchbag.classifiers.gaussian_process.posterior import JITTERS, jittered_cholesky
from patchbag.storage.declared import floats, real, stored
from patchbag.storage.registry import storable


@storable
@dataclass(frozen=True)
class InducingPosterior:
    """Posterior of C sets of targets through m inducing images; ``weights (m, C)`` multiply the rows k_u(x)."""

    weights: np.ndarray = stored(floats("n", "C"))
    factor: np.ndarray = stored(floats("n", "n"))
    inner: np.ndarray = stored(floats("n", "n"))
    log_evidence: float = stored(real(finite=False))
    trace_error: float = stored(real(finite=False))

    def mean(self, rows: np.ndarray) -> np.ndarray:
        """(q, C) mean of the soft labels for kernel ``rows (q, m)`` with the inducing images."""
        return rows @ self.weights

    def variance(self, rows: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        """(q,) their variance, with the self-kernel ``diagonal (q,)``."""
        half = solve_triangular(self.factor, rows.T, lower=True, check_finite=False)
        inner = solve_triangular(self.inner, half, lower=True, check_finite=False)
        return diagonal - np.einsum("ij,ij->j", half, half) + np.einsum("ij,ij->j", inner, inner)


def choose_inducing(kernel: np.ndarray, size: int) -> np.ndarray:
    """(size,) sorted indices of the images that greedily explain most of the variance of ``kernel (n, n)``.

    Stops early, with fewer images, when the rest is explained to rounding error.
    """
    n = len(kernel)
    residual = np.array(np.diagonal(kernel), dtype=float)
    total = max(float(residual.sum()), 1e-300)
    columns = np.zeros((size, n))
    chosen: list[int] = []
    for i in range(min(size, n)):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= 1e-12 * total / n:
            break
        column = (kernel[pivot] - columns[:i, pivot] @ columns[:i]) / np.sqrt(residual[pivot])
        columns[i] = column
        residual -= column**2
        chosen.append(pivot)
        residual[chosen] = -np.inf
    return np.sort(chosen)


def fit_inducing(
    cross: np.ndarray,
    diagonal: np.ndarray,
    inducing: np.ndarray,
    targets: np.ndarray,
    noise: float,
    method: str = "fitc",
) -> InducingPosterior:
    """Posterior of the soft labels under the Nyström or FITC covariance.

    Parameters
    ----------
    cross : (n, m) kernel between all images and the inducing ones
    diagonal : (n,) kernel of each image with itself
    inducing : (m,) which rows of ``cross`` are the inducing images
    targets : (n, C) of ±1
    noise : σ² > 0
    method : "nystroem" or "fitc"
    """
    n, n_classes = targets.shape
    m = len(inducing)
    # rounding can leave the inducing block singular when images repeat
    factor = jittered_cholesky((cross[inducing] + cross[inducing].T) / 2, 0.0, JITTERS[2:])
    v = solve_triangular(factor, cross.T, lower=True, check_finite=False)
    unexplained = np.maximum(diagonal - np.einsum("ij,ij->j", v, v), 0.0)
    spread = noise + (unexplained if method == "fitc" else np.zeros(n))
    scaled = v / np.sqrt(spread)
    b = scaled @ scaled.T
    b.flat[:: m + 1] += 1.0
    inner = cholesky(b, lower=True, check_finite=False)
    t = targets / np.sqrt(spread)[:, None]
    c = solve_triangular(inner, scaled @ t, lower=True, check_finite=False)
    inner_weights = solve_triangular(inner, c, lower=True, trans="T", check_finite=False)
    weights = solve_triangular(factor, inner_weights, lower=True, trans="T", check_finite=False)
    half_log_det = np.log(np.diagonal(inner)).sum() + 0.5 * np.log(spread).sum()
    evidence = -0.5 * (np.vdot(t, t) - np.vdot(c, c)) - n_classes * (half_log_det + 0.5 * n * np.log(2 * np.pi))
    total = max(float(diagonal.sum()), 1e-300)
    return InducingPosterior(weights, factor, inner, float(evidence), float(unexplained.sum()) / total)
