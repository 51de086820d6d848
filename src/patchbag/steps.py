# SPDX-License-Identifier: BSD-3-Clause
"""Finding and setting the parameters of nested steps that concern the machine (on its way out; see runtime).

A pipeline holds these as parameters of its steps, wherever they stand; the functions here find and set them.
"""

from __future__ import annotations

import inspect
from typing import Any

from patchbag.features.extraction import FeatureExtractor


def parts(pipeline: Any) -> list[Any]:
    """The pipeline and the fitted pipelines inside it."""
    found = [pipeline]
    for _, step in getattr(pipeline, "steps", []):
        for _, branch in getattr(step, "branches_", []):
            found += parts(branch)
    return found


def extractors(pipeline: Any) -> list[FeatureExtractor]:
    """The feature extractors that a pipeline uses, wherever they stand in it."""
    found: dict[str, FeatureExtractor] = {}
    for part in parts(pipeline):
        values = list(part.get_params(deep=True).values())
        idle = {id(feature) for value in values for feature in getattr(value, "idle_features", list)()}
        for value in values:
            if isinstance(value, FeatureExtractor) and id(value) not in idle:
                found.setdefault(str(value.get_params()), value)
    return list(found.values())


def takes_seed(step: Any, seed: Any) -> bool:
    """Whether a step takes the seed of the run: not if somebody gave it one, other than its class starts with.

    Features keep their own seed: every split of the images shares them, and so does the cache.
    """
    default = inspect.signature(type(step)).parameters["random_state"].default
    untouched = seed is default or (isinstance(seed, int) and seed == default)
    return untouched and not isinstance(step, FeatureExtractor)


def apply_runtime(pipeline: Any, *, n_jobs: int | None, cache: Any, random_state: Any = None) -> Any:
    """Set workers, cache and (where given) the seed on every step that has such a parameter; own seeds are kept."""
    for part in parts(pipeline):
        settings: dict[str, Any] = {}
        params = part.get_params(deep=True)
        for name, value in params.items():
            owner, _, last = name.rpartition("__")
            if last == "n_jobs" and name != "n_jobs":
                settings[name] = n_jobs
            elif last == "cache":
                settings[name] = cache
            elif last == "random_state" and random_state is not None and takes_seed(params.get(owner, part), value):
                settings[name] = random_state
        part.set_params(**settings)
    return pipeline
