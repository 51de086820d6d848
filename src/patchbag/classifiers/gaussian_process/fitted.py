# SPDX-License-Identifier: BSD-3-Clause
"""What a trained Gaussian process consists of, and how its parts fit together: for model files."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from patchbag.classifiers.gaussian_process.condensed import CondensedPosterior
from patchbag.classifiers.gaussian_process.laplace import LaplacePosterior
from patchbag.classifiers.gaussian_process.nystroem import InducingPosterior
from patchbag.classifiers.gaussian_process.posterior import GaussianPosterior
from patchbag.classifiers.targets import one_machine_a_class
from patchbag.storage.declared import Declared, Part, boolean, floats, integer, integers, labels, real, stored
from patchbag.storage.registry import storable

POSTERIORS = (GaussianPosterior, LaplacePosterior, InducingPosterior, CondensedPosterior)


@storable
@dataclass(frozen=True)
class Combination:
    """A learned combination: ``weights (k,)``, ``noise`` and how far to trust them.

    ``scales`` is None unless the bases are distances; the ``log_*_std`` are standard deviations of the logarithms.
    """

    weights: np.ndarray = stored(floats("k", low=0))
    noise: float = stored(real(low=0))
    scales: np.ndarray | None = stored(floats("k", low=0, optional=True))
    log_evidence: float = stored(real(finite=False))
    objective: float = stored(real(finite=False))
    log_weights_std: np.ndarray = stored(floats("k", finite=False))
    log_noise_std: float = stored(real(finite=False))
    log_scales_std: np.ndarray | None = stored(floats("k", finite=False, optional=True))
    converged: bool = stored(boolean())
    n_iterations: int = stored(integer(low=0), default=0)


class FittedProcess:
    """Of n training images and k kernels; the posterior is one of them all, or of the inducing ones."""

    _stored: ClassVar[dict[str, Declared]] = {
        "classes_": labels(),
        "input_": Part("KernelInput", k="k", n="n"),
        "inducing_": integers("inducing", low=0, below="n", nullable=True),
        "combination_": Part("Combination", optional=True, k="k"),
        "weights_": floats("k", low=0),
        "log_weights_std_": floats("k", finite=False, optional=True),
        "scales_": floats("k", low=0, nullable=True),
        "noise_": real(low=0),
        "posterior_": Part(*(kind.__name__ for kind in POSTERIORS), n="known", C="machines", classes="C"),
        "log_evidence_": real(finite=False, optional=True),
        "trace_error_": real(finite=False, optional=True),
        "temperature_": real(low=0, nullable=True),
    }

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        known = sizes.get("inducing", sizes["n"])
        if sizes["known"] != known:
            return f"its posterior is of {sizes['known']} images, not of {known}"
        if isinstance(values["posterior_"], CondensedPosterior):
            sizes = sizes | {"machines": known - sizes["C"]}
        return one_machine_a_class(values, sizes)
