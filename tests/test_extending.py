"""The worked example of docs/extending.md: one file adds a feature, an encoding, a kernel and a recipe."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from patchbag import Categorizer, PerClassSplit, evaluate
from patchbag.recipes import RECIPES
from patchbag.settings import check_settings
from patchbag.stages import FEATURES

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def example():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    module = types.ModuleType("example")  # as if it were a file that was imported
    sys.modules["example"] = module
    exec(code, vars(module))
    yield vars(module)
    del RECIPES["grey-chord"], FEATURES["grey"], sys.modules["example"]


def test_the_new_recipe_trains_predicts_and_survives_the_disk(textures, tmp_path):
    images, labels = textures
    model = Categorizer("grey-chord").fit(images[::2], labels[::2])
    assert model.score(images[1::2], labels[1::2]) > 0.45  # chance is 0.33
    again = Categorizer.load(model.save(tmp_path / "m"))
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images))
    assert evaluate(model, images, labels, cv=PerClassSplit(6, n_splits=2)).mean_accuracy > 0.4


def test_its_parameters_are_checked_like_those_of_any_other(textures):
    images, labels = textures
    pipeline = Categorizer("grey-chord").pipeline()
    with pytest.raises(ValueError, match=r"features\.side must be an int in the range \[2, inf\); got 1"):
        check_settings(pipeline, {"features__side": 1}, "recipe 'grey-chord'")
    with pytest.raises(ValueError, match="The 'side' parameter of GreyPatches must be an int"):
        pipeline.set_params(features__side=1).fit(images, labels)


def test_a_name_is_registered_once(example):
    with pytest.raises(ValueError, match="there is a recipe 'fisher' already"):
        example["add_recipe"]("fisher", "", "", list)
