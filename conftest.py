"""What the examples in docstrings take for granted: NumPy, and the data of 120 images; and how Triton's kernels run."""

from __future__ import annotations

import os
from ctypes.util import find_library
from functools import cache
from typing import Any

import numpy as np
import pytest

if find_library("cuda") is None:  # no driver: kernels are interpreted, so that a machine without a card tests them too
    os.environ.setdefault("TRITON_INTERPRET", "1")


@cache
def example_data() -> dict[str, Any]:
    from patchbag import BagOfWords, Bags, MAPAdaptation, UniversalMixture, UniversalStatistics

    rng = np.random.default_rng(0)
    bags, colour_bags = (Bags.from_list(rng.normal(size=(120, 30, 4)).astype(np.float32)) for _ in "ab")
    statistics = UniversalStatistics(UniversalMixture(8, random_state=0)).fit_transform(bags)
    mixtures, words = MAPAdaptation().fit_transform(statistics), BagOfWords().fit_transform(statistics)
    named = {"bags": bags, "colour_bags": colour_bags, "statistics": statistics, "mixtures": mixtures, "words": words}
    return {"np": np, **named}


@pytest.fixture(autouse=True)
def names_of_examples(request: Any) -> None:
    if type(request.node).__name__ == "DoctestItem":
        request.getfixturevalue("doctest_namespace").update(example_data())
