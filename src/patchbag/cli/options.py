# SPDX-License-Identifier: BSD-3-Clause
"""What several commands take: the application itself, their common options, and the categorizer that these describe."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from patchbag.cli import screen


class Commands(TyperGroup):
    """The commands; Ctrl-C ends any of them with one line and the status that shells expect."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            screen.say("stopped")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    help="Categorise images by their local features, and say how sure it is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FolderArgument = Annotated[
    Path, typer.Argument(help="Folder with one sub-folder of images a class, or labelled by 'patchbag active'.")
]
RecipeOption = Annotated[str, typer.Option("--recipe", "-r", help="How images are compared; see 'patchbag recipes'.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE", help="A parameter of the recipe, e.g. statistics.mixture.n_components=64."
    ),
]


def check_jobs(jobs: int) -> int:
    if jobs < 1 and jobs != -1:
        raise typer.BadParameter(f"must be a number of workers, or -1 for all cores; got {jobs}")
    return jobs


JobsOption = Annotated[
    int, typer.Option("--jobs", "-j", callback=check_jobs, help="Workers that describe images; -1 for all cores.")
]
CacheOption = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep the features of images on disk for the next run.")
]
ColorOption = Annotated[bool, typer.Option("--color", help="Also train on colours and average both answers.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]

# parameters of features that the run decides, and the option that does
OPTIONS_OF_THE_RUN = {"n_jobs": "--jobs", "cache": "--cache or --no-cache"}


def parse_settings(settings: list[str] | None) -> dict[str, Any]:
    """``["a.b=1"]`` → {"a__b": 1}: values are JSON where they can be, else text."""
    parsed: dict[str, Any] = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE, such as statistics.mixture.n_components=64; got {setting!r}")
        try:
            parsed[name.replace(".", "__")] = json.loads(value)
        except ValueError:
            parsed[name.replace(".", "__")] = value
    return parsed


def make_categorizer(recipe: str, settings: list[str] | None, seed: int, color: bool) -> Any:
    """The categorizer of a recipe with the user's settings, whose names and kinds are checked."""
    from patchbag.categorizer import Categorizer
    from patchbag.recipes import make_recipe
    from patchbag.settings import check_settings

    parsed = parse_settings(settings)
    pipeline = make_recipe(recipe, color)
    for name in parsed:
        option = OPTIONS_OF_THE_RUN.get(name.rpartition("__")[2])
        if option:
            raise ValueError(f"{name.replace('__', '.')} is set for all features at once: use {option}")
    what = f"recipe {recipe!r}{' with colours' if color else ''}"
    check_settings(pipeline, parsed, what, listing=f"'patchbag recipes {recipe}'")
    categorizer = Categorizer(recipe, color=color, random_state=seed)
    return categorizer.set_params(**{f"recipe__{k}": v for k, v in parsed.items()}) if parsed else categorizer


@contextlib.contextmanager
def settings_to_blame(settings: list[str] | None) -> Iterator[None]:
    """A setting that got past the checks and trips a step up is a mistake of the user, not a bug to print whole."""
    try:
        yield
    except (TypeError, AttributeError, IndexError, KeyError) as error:
        if not settings or os.environ.get("PATCHBAG_DEBUG"):
            raise
        raise ValueError(
            f"the recipe does not work with --set {' --set '.join(settings)}: {type(error).__name__}: {error}; "
            "PATCHBAG_DEBUG=1 shows where"
        ) from error
