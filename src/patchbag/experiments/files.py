# SPDX-License-Identifier: BSD-3-Clause
"""The TOML files of published experiments: where they are, and whether what is in them can be run.

What a file needs depends on its ``kind`` (see ``runner``).  It is checked when the file is read, with the names of the
keys, so that a slip does not show after the images have been described.
Settings of recipes are checked when the recipes are made (:mod:`patchbag.settings`).
"""

import difflib
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from patchbag.parameters import ONE_OR_MORE, ZERO_OR_MORE
from patchbag.settings import check_value

ABOUT = ("kind", "title", "source", "note", "axis", "plot")
TEXTS = (
    *ABOUT, "data", "recipe", "name", "universal", "classifier", "by", "figure", "tree", "layout", "model", "points",
)  # fmt: skip
COUNTS = (
    "splits", "train_per_class", "test_per_class", "folds", "queries", "preselected", "images_per_class", "first",
    "expand", "verify",
)  # fmt: skip
RULES: dict[str, list[Any]] = {
    **{key: [str] for key in TEXTS},
    **{key: [ONE_OR_MORE] for key in COUNTS},
    **{key: [list] for key in ("classes", "without", "criteria", "kernels", "at", "versions")},
    **{key: [dict] for key in ("settings", "over", "strategies", "tables")},
    **{key: ["boolean"] for key in ("whole", "half", "pool", "diffuse", "low_pass")},
    "features": [str, list],
    "seed": [ZERO_OR_MORE],
}
# keys whose values are looked at by the study itself
OTHERS = (
    "run", "published", "binary", "gain", "batch", "batch_size", "n_labels", "n_start", "n_test", "noise", "x",
)  # fmt: skip


class ExperimentError(ValueError):
    """An experiment that is not there or not complete, or whose data are not there."""


class Study(NamedTuple):
    """What runs the files of one kind, the keys that such a file must have, and those that each of its runs must."""

    run: Callable[..., list[dict[str, Any]]]
    needs: list[str]
    each: list[str]


STUDIES: dict[str, Study] = {}
F = TypeVar("F", bound=Callable[..., list[dict[str, Any]]])


def study(kind: str, needs: str = "", each: str = "") -> Callable[[F], F]:
    """Let a function run the files of a kind: it takes an ``Experiment`` and returns rows."""

    def register(function: F) -> F:
        STUDIES[kind] = Study(function, needs.split(), each.split())
        return function

    return register


def experiments_folder() -> Path:
    """Where the TOML files are: inside the installed package, or in the source tree."""
    package = Path(__file__).parents[1]
    installed, source = package / "published", package.parents[1] / "experiments"
    return installed if installed.is_dir() else source


def list_experiments() -> list[str]:
    root = experiments_folder()
    return sorted(str(p.relative_to(root).with_suffix("")) for p in root.rglob("*.toml"))


def load_experiment(name: str) -> dict[str, Any]:
    """The experiment of that name, such as ``liu2010/scene15``, or in that file."""
    path = Path(name) if name.endswith(".toml") else experiments_folder() / f"{name}.toml"
    if not path.is_file():
        raise ExperimentError(f"there is no experiment {name!r}; there are {', '.join(list_experiments()) or 'none'}")
    try:
        spec = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path}: {error}") from error
    spec.setdefault("kind", "evaluate")
    check_experiment(spec, str(path))
    spec["name"] = path.stem if name.endswith(".toml") else name
    return spec


def check_experiment(spec: dict[str, Any], where: str) -> None:
    """Raise ExperimentError unless the experiment has what its kind needs."""
    _check_kinds(spec, where)
    if spec["kind"] not in STUDIES:
        raise ExperimentError(f"{where}: unknown kind {spec['kind']!r}; there are {', '.join(STUDIES)}")
    _, needed, needed_of_run = STUDIES[spec["kind"]]
    _check_keys(spec, needed, where)
    if spec["kind"] == "evaluate" and ("train_per_class" in spec) == ("folds" in spec):
        raise ExperimentError(f"{where}: there must be train_per_class or folds in it, one of them")
    runs = spec.get("run", [])
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs) or ("run" in needed and not runs):
        raise ExperimentError(f"{where}: runs are written as tables, each under a line [[run]]")
    for number, run in enumerate(runs, 1):
        place = f"{where}, run {run.get('name', number)!r}"
        _check_kinds(run, place)
        _check_keys(run, needed_of_run, place)
        for parameter, values in run.get("over", {}).items():
            if not isinstance(values, list) or not values:
                raise ExperimentError(f"{place}: over must give {parameter} a list of values, got {values!r}")
            published = run.get("published", values)
            if not isinstance(published, list) or len(published) != len(values):
                raise ExperimentError(
                    f"{place}: published must be a list of {len(values)} figures, one per value of over"
                )


def _check_keys(table: dict[str, Any], needed: Sequence[str], where: str) -> None:
    missing = [key for key in needed if key not in table]
    if missing:
        raise ExperimentError(f"{where}: there is no {', no '.join(missing)} in it")


def _check_kinds(table: dict[str, Any], where: str) -> None:
    unknown = [key for key in table if key not in RULES and key not in OTHERS]
    if unknown:
        nearest = difflib.get_close_matches(unknown[0], [*RULES, *OTHERS], 1)
        raise ExperimentError(f"{where}: unknown key {unknown[0]!r}" + (f"; is it {nearest[0]!r}?" if nearest else ""))
    for key in table.keys() & RULES.keys():
        try:
            check_value(key, table[key], RULES[key])
        except ValueError as error:
            raise ExperimentError(f"{where}: {error}") from error
