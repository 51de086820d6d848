# SPDX-License-Identifier: BSD-3-Clause
"""Kernel matrices between all images of a data set, made once and kept in the cache for all experiments.

As in kapoor2010, what a kernel learns (PCA, words, bins, scale), it learns from all images, without their labels.  A
matrix is found again by the content of the images and by every parameter of its features and its kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from patchbag import __version__
from patchbag.channels import Channel
from patchbag.experiments.runs import open_data, run_pipeline
from patchbag.features.cache import content_digest, open_cache
from patchbag.features.channels import FeatureChannels
from patchbag.similarity.union import KernelUnion
from patchbag.steps import apply_runtime

RUNTIME = ("n_jobs", "n_threads", "cache", "memory", "verbose")


def kernels_of(
    spec: dict[str, Any], data: Path | None, progress: Callable[[str], None]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The kernels of a recipe between all images of the data set, by name, and the labels."""
    folder = open_data(spec, data)
    pipeline = apply_runtime(
        run_pipeline(spec, {}), n_jobs=spec["n_jobs"], cache=spec["cache"], random_state=spec.get("seed", 0)
    )
    features, steps, kernel = pipeline.steps[0][1], pipeline.steps[1:-2], pipeline.steps[-2][1]
    union = isinstance(kernel, KernelUnion)
    branches = kernel.chosen() if union else [(spec["recipe"], pipeline[1:-1])]
    store = open_cache(spec["cache"])
    content = hashlib.blake2b(b"".join(content_digest(path) for path in folder.paths)).digest()
    described: Any = None
    kernels = {}
    for name, branch in branches:
        origin = [plain_parameters(part) for part in (*sources(features, branch), *(s for _, s in steps if union))]
        key = store.key(content, {"from": origin, "kernel": plain_parameters(branch)}) if store is not None else ""
        found = store.get(key) if store is not None else None
        if found is None:
            if described is None:
                progress(f"describing {len(folder)} images")
                described = features.transform(folder.paths)
                for _, step in steps if union else []:
                    described = step.fit_transform(described)
            progress(f"kernel {name} of {len(folder)} images")
            gram = np.asarray(branch.fit_transform(described), dtype=float)
            found = (gram, np.zeros((len(gram), 2), np.float32))
            if store is not None:
                store.put(key, *found)
        kernels[name] = found[0]
    return kernels, folder.labels


def sources(features: Any, branch: Any) -> list[Any]:
    """The feature extractors that a branch works on."""
    if not isinstance(features, FeatureChannels):
        return [features]
    names = {step.name for _, step in branch.steps if isinstance(step, Channel)}
    return [feature for name, feature in features.channels if name in names]


def plain_parameters(estimator: Any) -> dict[str, str]:
    """Every parameter that can change a result, spelled out; of an estimator inside, its class and its parameters."""
    spelled = {"": f"{type(estimator).__name__} {__version__}"}
    for name, value in estimator.get_params(deep=True).items():
        if name.split("__")[-1] in RUNTIME:
            continue
        if isinstance(value, list) and value and isinstance(value[0], tuple):  # steps, which follow one by one
            spelled[name] = repr([part[0] for part in value])
        else:
            spelled[name] = type(value).__name__ if hasattr(value, "get_params") else repr(value)
    return spelled
