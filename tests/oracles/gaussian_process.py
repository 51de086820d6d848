# SPDX-License-Identifier: BSD-3-Clause
"""Literal, slow versions of the Gaussian process formulas: dense inverses, densities, quadrature."""

from __future__ import annotations

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm


def posterior(kernel, targets, noise, rows, diagonal):
    """kapoor2010, eq. 5 and 6, one image and one class at a time."""
    inverse = np.linalg.inv(noise * np.eye(len(kernel)) + kernel)
    mean = np.array([[row @ inverse @ t for t in targets.T] for row in rows])
    variance = np.array([d - row @ inverse @ row for row, d in zip(rows, diagonal)])
    return mean, variance


def joint_log_evidence(covariance, targets):
    return sum(multivariate_normal(np.zeros(len(covariance)), covariance).logpdf(t) for t in targets.T)


def winning_probability(mean, deviation, c):
    """Probability that normal label c is the largest, by adaptive quadrature."""

    def integrand(v):
        others = [norm.cdf((v - m) / s) for i, (m, s) in enumerate(zip(mean, deviation)) if i != c]
        return norm.pdf((v - mean[c]) / deviation[c]) / deviation[c] * np.prod(others)

    low, high = mean[c] - 10 * deviation[c], mean[c] + 10 * deviation[c]
    return quad(integrand, low, high, limit=200, epsabs=1e-12)[0]


def inducing_covariance(kernel, inducing, noise, method):
    """The dense covariance that the Nyström or FITC approximation stands for."""
    cross = kernel[:, inducing]
    q = cross @ np.linalg.inv(kernel[np.ix_(inducing, inducing)]) @ cross.T
    extra = np.diag(np.diag(kernel - q)) if method == "fitc" else 0.0
    return q, q + extra + noise * np.eye(len(kernel))


def laplace(kernel, targets):
    """Mode by a general optimiser, evidence by the determinant of the numerical Hessian of the log posterior."""
    inverse = np.linalg.inv(kernel)

    def objective(y):
        return -(norm.logcdf(targets * y).sum() - 0.5 * y @ inverse @ y)

    mode = minimize(objective, np.zeros(len(targets)), method="BFGS", options={"gtol": 1e-9}).x
    n = len(mode)
    w = np.zeros(n)
    for i in range(n):
        z = targets[i] * (mode[i] + np.array([-1e-3, 0.0, 1e-3]))
        w[i] = -(norm.logcdf(z[0]) - 2 * norm.logcdf(z[1]) + norm.logcdf(z[2])) / 1e-6
    evidence = -objective(mode) - 0.5 * np.linalg.slogdet(np.eye(n) + kernel @ np.diag(w))[1]
    return mode, w, evidence
