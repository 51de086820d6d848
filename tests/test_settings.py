from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from patchbag.recipes import RECIPES, make_recipe
from patchbag.settings import check_settings, is_kind, kind_name


def check(recipe: str, name: str, value: Any) -> None:
    check_settings(make_recipe(recipe), {name.replace(".", "__"): value}, f"recipe {recipe!r}")


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("features.bin_sizes", 4, r"must be a list of whole numbers, such as \[4, 6, 8, 10\]; got 4"),
        ("features.bin_sizes", [4, "6"], "must be a list of whole numbers"),
        ("features.max_side", "abc", 'must be a whole number or null, such as 512; got "abc"'),
        ("features.window", "round", 'must be "flat" or "gaussian"; got "round"'),
        ("features.root", 1, "must be true or false; got 1"),
        ("statistics.projection.n_components", "abc", "must be a whole number"),
        ("statistics.projection.n_components", 2.5, "must be a whole number, such as 64; got 2.5"),
        ("statistics.projection.n_components", True, "must be a whole number"),
        ("statistics.projection.n_components", None, "must be a whole number"),
        ("statistics.pyramid", 5, "must be a list of texts or null"),
        ("statistics.mixture.tol", "x", "must be a number, such as 0.001"),
        ("statistics.mixture.tol", float("nan"), "must be a number"),
        ("statistics.mixture.n_components", "many", 'must be a whole number or "auto"'),
        ("statistics.mixture.split_iter", -1, "must not be negative; got -1"),
        ("statistics.mixture.random_state", "x", "must be a whole number or null"),
        ("normalize.steps", 5, "must be a list of texts"),
        ("classifier.folds", "x", "must be a whole number"),
        ("classifier.C", "large", 'must be a number or "auto"'),
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
        ("fisher", "statistics.mixture.n_threads", -1),
        ("fisher", "statistics.mixture.random_state", 7),
        ("fisher", "statistics.projection", None),
        ("fisher", "normalize", "passthrough"),
        ("words-chi2", "scale.with_mean", False),
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


def test_kinds_follow_annotations():
    assert is_kind(3, float) and is_kind([1, 2.5], Sequence[float]) and is_kind(None, int | None)
    assert is_kind("a", Literal["a", "b"]) and is_kind({"x": 1}, dict) and is_kind("anything", Any)
    assert not is_kind(True, float) and not is_kind("ab", Sequence[str]) and not is_kind("c", Literal["a", "b"])
    assert kind_name(list[str] | None) == "a list of texts or null"
    assert kind_name(Literal["a", "b"]) == '"a" or "b"'
