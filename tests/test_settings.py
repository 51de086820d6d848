from __future__ import annotations

from typing import Any

import pytest

from patchbag.recipes import RECIPES, make_recipe
from patchbag.settings import check_settings


def check(recipe: str, name: str, value: Any) -> None:
    check_settings(make_recipe(recipe), {name.replace(".", "__"): value}, f"recipe {recipe!r}")


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("features.step", 0, r"features.step must be an int in the range \[1, 1024\]; got 0"),
        ("features.bin_sizes", 4, "features.bin_sizes must be .*; got 4"),
        ("features.max_side", "abc", 'features.max_side must be .*int.* None; got "abc"'),
        ("features.window", "round", 'must be a str among .*; got "round"'),
        ("features.root", 1, "must be an instance of 'bool'.*; got 1"),
        ("statistics.projection.n_components", "abc", "must be an int"),
        ("statistics.projection.n_components", 2.5, "must be an int in the range .*; got 2.5"),
        ("statistics.projection.n_components", True, "must be a number or a text; got true"),
        ("statistics.projection.n_components", None, "must be an int"),
        ("statistics.pyramid", 5, "must be .* None"),
        ("statistics.mixture.tol", "x", "must be a float"),
        ("statistics.mixture.n_components", "many", "must be .*'auto'"),
        ("statistics.mixture.split_iter", -1, "must be an int in the range"),
        ("statistics.mixture.random_state", "x", "must be"),
        ("normalize.steps", 5, "must be"),
        ("classifier.folds", "x", "must be an int"),
        ("classifier.C", "large", "must be .*'auto'"),
        ("encoding", "foo", "'encoding' is a whole step, .* set its parameters, such as encoding.blocks"),
        ("features", "passthrough", "is a whole step"),
        ("classifier", "passthrough", "is a whole step"),
        ("statistics.projection", "none", "is a whole step"),
        ("steps", [], "is a whole step"),
        ("memory", "there", "has no parameter 'memory'"),
        ("features.stride", 2, "has no parameter 'features.stride'; is it 'features.step'"),
        ("mixture.n_components", 2, "is it 'statistics.mixture.n_components'"),
    ],
)
def test_a_value_of_another_kind_or_name_is_refused_with_its_name(name, value, message):
    with pytest.raises(ValueError, match=message):
        check("fisher", name, value)


@pytest.mark.parametrize(
    "recipe, name, value",
    [
        ("fisher", "features.bin_sizes", [4, 8]),
        ("fisher", "features.magnification", 6),
        ("fisher", "features.max_side", None),
        ("fisher", "statistics.mixture.n_components", 16),
        ("fisher", "statistics.mixture.n_components", "auto"),
        ("fisher", "statistics.mixture.n_jobs", -1),
        ("fisher", "statistics.mixture.random_state", 7),
        ("fisher", "statistics.projection", None),
        ("fisher", "normalize", "passthrough"),
        ("words-chi2", "classifier.rows", "vectors"),
        ("gp-combined", "features.gb", "drop"),
        ("gp-combined", "kernels.use", ["spm"]),
        ("gp-spm", "classifier.weights", [1.0]),
    ],
)
def test_what_a_step_can_take_is_taken(recipe, name, value):
    check(recipe, name, value)


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_the_values_of_a_recipe_pass_its_own_check(recipe):
    pipeline = make_recipe(recipe)
    params = pipeline.get_params(deep=True)
    plain = {k: v for k, v in params.items() if isinstance(v, bool | int | float | str) or k.endswith("sizes")}
    settings = {k: v for k, v in plain.items() if k.rsplit("__", 1)[-1] != "verbose"}
    assert len(settings) > 5
    check_settings(pipeline, settings, recipe)


def test_the_listing_is_named_where_no_parameter_is_near():
    with pytest.raises(ValueError, match="no parameter 'zzz'; 'patchbag recipes words' lists them"):
        check_settings(make_recipe("words"), {"zzz": 1}, "recipe 'words'", listing="'patchbag recipes words'")


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_every_parameter_of_a_step_has_a_rule(recipe):
    for name, step in make_recipe(recipe).get_params(deep=True).items():
        if type(step).__module__.startswith("patchbag.") and hasattr(step, "get_params"):
            missing = step.get_params(deep=False).keys() - getattr(step, "_parameter_constraints", {}).keys()
            named = set(dict(getattr(step, "branches", None) or getattr(step, "channels", None) or []))
            assert missing <= named, f"{recipe} {name} {type(step).__name__}"
