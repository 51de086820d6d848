# SPDX-License-Identifier: BSD-3-Clause
"""Published studies that need no data: the toy example of liu2010, discount curves of cinbis2012, what kernels cost.

Each returns its rows: name, our figure as ``mean``, and the published one.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq

from patchbag.experiments.experiment import Experiment, Row, make_row
from patchbag.experiments.files import study

# fine enough that sums over it are integrals to ten digits
GRID = np.linspace(-16, 16, 64_001)
STEP = GRID[1] - GRID[0]


def _density(means: list[float]) -> np.ndarray:
    """Equal mixture of unit Gaussians on the grid."""
    return np.mean([np.exp(-0.5 * (GRID - m) ** 2) for m in means], axis=0) / np.sqrt(2 * np.pi)


@study("toy")
def toy_example(experiment: Experiment) -> list[Row]:
    r"""liu2010 §5.2: q = ½N(2, 1) + ½N(−2, 1) beside its halves p1, p2 and the shifted p3(δ).

    δ at which p3 is as far from q as p1 is, by numerical integration; and the mixture weights of q over the three.
    """
    from patchbag.mixture.adaptation import Mixtures
    from patchbag.similarity.mixtures.references import reference_weights

    def skl(p: np.ndarray, q: np.ndarray) -> float:
        return float(((p - q) * np.log(p / q)).sum() * STEP)

    def bha(p: np.ndarray, q: np.ndarray) -> float:
        return float(np.sqrt(p * q).sum() * STEP)

    q, p1 = _density([2, -2]), _density([-2])
    rows = []
    for name, measure, published in (("δ of equal SKL", skl, 2.0), ("δ of equal Bhattacharyya", bha, 1.5)):
        goal = measure(q, p1)
        delta = brentq(lambda d, m=measure, g=goal: m(q, _density([2 + d, -2 - d])) - g, 0.01, 6)
        rows.append(make_row(name, delta, published))

    def mixture(means: list[list[float]]) -> Mixtures:
        k = len(means[0])
        return Mixtures(np.full((len(means), k), 1 / k), np.array(means)[..., None], np.ones((len(means), k, 1)))

    delta = rows[0]["mean"]
    weights = reference_weights(
        mixture([[2.0, -2.0]]),
        mixture([[-2.0, -2.0], [2.0, 2.0], [2 + delta, -2 - delta]]),
        matching="all",
        iterations=1000,
    )
    for name, weight, published in zip(("p1", "p2", "p3"), weights[0], (0.5, 0.5, 0.0)):
        rows.append(make_row(f"weight of {name} at convergence", weight, published))
    return rows


@study("discount")
def discount_curves(experiment: Experiment) -> list[Row]:
    """cinbis2012 figure 5: how far ψ(α + n), rescaled to [0, 1], is from √n, for n up to 100."""
    from patchbag.encodings.polya import discount_curve

    n = np.arange(101.0)
    root = np.sqrt(n / 100)
    rows = []
    for alpha in (0.01, 0.1, 1.0, 10.0, 100.0, 1e4):
        curve = discount_curve(alpha, n)
        rows.append(make_row(f"α = {alpha:g}: curve at n = 25", curve[25], None, curve=curve.tolist()))
    rows.append(make_row("√n at n = 25", root[25], None, curve=root.tolist()))
    rows.append(make_row("linear at n = 25", 0.25, None))
    return rows


@study("eigenfunctions")
def eigenfunctions(experiment: Experiment) -> list[Row]:
    """liu2010 figure 7.1: functions of 2uv/(u + v) learned at 128 points regularly spaced in [0, 1]."""
    from patchbag.embeddings.eigenfunctions import KERNELS, beginning, nystroem, top_eigenpairs

    u = np.linspace(0, 1, 128)[None]
    k = KERNELS["chi2"](u[:, :, None], u[:, None, :])
    values, vectors = top_eigenpairs(k, 3, beginning(k, 3, np.random.default_rng(0)))
    phi = nystroem(u, u, vectors / np.sqrt(values)[:, :, None], KERNELS["chi2"])[0]
    phi *= np.sign(phi[-1])
    apart = np.abs(phi[:, 0] - np.sqrt(u[0]))
    one = np.abs(np.outer(phi[:, 0], phi[:, 0]) - k[0])
    return [
        make_row("largest |φ₁(u) − √u|", apart.max(), curve=phi[:, 0].tolist()),
        make_row("  at u =", u[0, apart.argmax()]),
        make_row("mean |φ₁(u) − √u|", apart.mean()),
        make_row("largest |k − φ₁φ₁|", one.max()),
        make_row("mean |k − φ₁φ₁|", one.mean()),
        make_row("mean |k − Σ φφ| with three functions", np.abs(phi @ phi.T - k[0]).mean()),
        make_row("share of the first eigenvalue, %", 100 * values[0, 0] / np.trace(k[0])),
    ]


@study("mixture-cost")
def mixture_cost(experiment: Experiment) -> list[Row]:
    """liu2010 §4.3.2.4: milliseconds per image, microseconds per pair, 128 Gaussians × 50-D."""
    from patchbag import Bags, UniversalMixture
    from patchbag.mixture.adaptation import MAPAdaptation
    from patchbag.mixture.maximum_likelihood import maximum_likelihood
    from patchbag.similarity.mixtures.kernel import product_kernel, symmetric_kl

    rng = np.random.default_rng(0)
    bags = Bags(rng.normal(size=(60_000, 50)).astype(np.float32), np.arange(0, 60_001, 1000))
    mixture = UniversalMixture(128, max_iter=3).fit(bags)
    experiment.progress("statistics and adaptation")

    def clock(function: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
        result = function()
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            function()
            times.append(time.perf_counter() - started)
        return min(times), result

    seconds, statistics = clock(lambda: mixture.statistics(bags))
    adaptation = MAPAdaptation().fit(statistics)
    more, adapted = clock(lambda: adaptation.transform(statistics))
    rows = [
        make_row("statistics of an image of 1,000 descriptors, ms", 1e3 * seconds / 60),
        make_row("MAP adaptation of an image in all, ms", 1e3 * (seconds + more) / 60, 15.0),
    ]
    many = adapted[np.arange(600) % 60]
    experiment.progress("kernels")
    for name, kernel, published in (("symmetric KL", symmetric_kl, 80.0), ("PPK", product_kernel, 400.0)):
        seconds, _ = clock(partial(kernel, many, many))
        rows.append(make_row(f"one-to-one {name}, µs per pair", 1e6 * seconds / 600**2, published))
    experiment.progress("one-to-many kernels and maximum likelihood")
    few = adapted[:20]
    for name, kernel in (
        ("symmetric KL (matched)", partial(symmetric_kl, few, few, "matched")),
        ("PPK", partial(product_kernel, few, few, matching="one-to-many")),
    ):
        seconds, _ = clock(kernel, 1)
        rows.append(make_row(f"one-to-many {name}, µs per pair", 1e6 * seconds / 20**2))
    seconds, _ = clock(partial(maximum_likelihood, bags[:8], UniversalMixture(128)), 1)
    rows.append(make_row("maximum likelihood of an image, ms", 1e3 * seconds / 8, 430.0))
    return rows
