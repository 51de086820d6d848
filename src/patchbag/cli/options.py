# SPDX-License-Identifier: BSD-3-Clause
"""What several commands take: the application itself, their common options, and the categorizer that these describe."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from patchbag.cli import screen

# commands that come first in the help, in this order
FIRST = ("demo", "train", "predict", "info", "evaluate", "active", "serve", "index", "search", "duplicates", "cluster")


class Commands(TyperGroup):
    """The commands; Ctrl-C ends any of them with one line and the status that shells expect."""

    def list_commands(self, ctx: Any) -> list[str]:
        known = super().list_commands(ctx)
        return [*(name for name in FIRST if name in known), *(name for name in known if name not in FIRST)]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            screen.say("stopped")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    help="Categorise and search images by their local features, and say how sure it is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version_callback(value: bool) -> None:
    if value:
        from patchbag import __version__

        screen.result(f"patchbag {__version__}")
        raise typer.Exit


@app.callback()
def patchbag(
    version: Annotated[
        bool, typer.Option("--version", callback=version_callback, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Categorise and search images by their local features, and say how sure it is."""


FolderArgument = Annotated[
    Path, typer.Argument(help="Folder with one sub-folder of images per class, or with a labels.csv.")
]
LabelsOption = Annotated[
    Path | None,
    typer.Option("--labels", metavar="FILE", help="CSV or JSON file of labels, image by image; default: sub-folders."),
]
RecipeOption = Annotated[str, typer.Option("--recipe", "-r", help="How images are compared; see 'patchbag recipes'.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="A parameter of the recipe, e.g. classifier.C=1; see 'patchbag recipes NAME'.",
    ),
]


def check_jobs(jobs: int) -> int:
    if jobs < 1 and jobs != -1:
        raise typer.BadParameter(f"must be a number of workers, or -1 for all cores; got {jobs}")
    return jobs


JobsOption = Annotated[
    int, typer.Option("--jobs", "-j", callback=check_jobs, help="Number of workers; -1 for all cores.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="Where to compute: cpu, cuda, or cuda:1 for the second GPU.")
]
CacheOption = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep the features of images on disk for the next run.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Dask scheduler, such as tcp://10.0.0.5:8786, or local for one here."),
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        "--features",
        "-f",
        metavar="NAMES",
        help="Features in place of the recipe's, several by commas: sift, sift-contrast, color, gb, gist, lbp, smp, "
        "deep, deep-pooled.",
    ),
]


def raise_pixels(context: typer.Context, text: str | None) -> str | None:
    """While the command runs, read images of up to so many pixels."""
    if text is None or context.resilient_parsing:
        return text
    from patchbag.collection.store import parse_bytes
    from patchbag.runtime import raised_pixels

    try:
        context.with_resource(raised_pixels(parse_bytes(text)))
    except ValueError:
        raise typer.BadParameter(f"must be a number of pixels such as 200M, got {text!r}") from None
    return text


def choose_frame(context: typer.Context, number: int | None) -> int | None:
    """While the command runs, read that page of files with several pages."""
    if number is not None and not context.resilient_parsing:
        from patchbag.runtime import runtime_context

        context.with_resource(runtime_context(frame=number))
    return number


def choose_channels(context: typer.Context, text: str | None) -> str | None:
    """While the command runs, read those channels of images."""
    if text is None or context.resilient_parsing:
        return text
    from patchbag.runtime import runtime_context

    numbers = text.split(",")
    if len(numbers) not in (1, 3) or not all(number.strip().isdecimal() for number in numbers):
        raise typer.BadParameter(f"takes one number for grey, or three for colours such as 3,1,0; got {text!r}")
    context.with_resource(runtime_context(channels=[int(number) for number in numbers]))
    return text


PixelsOption = Annotated[
    str | None,
    typer.Option(
        "--max-pixels",
        metavar="NUMBER",
        callback=raise_pixels,
        help="Read images of up to so many pixels, e.g. 200M, whatever memory they take; default: 160M and 1 GB.",
    ),
]
FrameOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        callback=choose_frame,
        help="Which page of TIFF files and frame of animations is read, the first is 0; predict: that of training.",
    ),
]
ChannelsOption = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,N",
        callback=choose_channels,
        help="Which channels are read: one, or three such as 3,1,0; predict: those of training.",
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace files that are there even if patchbag has not written them.")
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of everything random.")]


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


def make_categorizer(recipe: str, features: str | None, settings: list[str] | None, seed: int) -> Any:
    """The categorizer of a recipe with the user's features and settings, whose names and values are checked."""
    from patchbag.categorizer import Categorizer
    from patchbag.recipes import make_recipe
    from patchbag.settings import check_settings

    names = None if features is None else features.split(",")
    parsed = parse_settings(settings)
    of_the_run = [name for name in parsed if name.endswith("n_jobs")]
    if of_the_run:
        raise ValueError(f"{of_the_run[0].replace('__', '.')} is set for all steps at once: use --jobs")
    check_settings(make_recipe(recipe, names), parsed, f"recipe {recipe!r}", listing=f"'patchbag recipes {recipe}'")
    categorizer = Categorizer(recipe, features=names, random_state=seed)
    return categorizer.set_params(**{f"recipe__{k}": v for k, v in parsed.items()}) if parsed else categorizer


@contextlib.contextmanager
def settings_to_blame(settings: list[str] | None) -> Iterator[None]:
    """Report an error that a setting has caused in one line: it is the user's mistake, and needs no traceback."""
    try:
        yield
    except (TypeError, AttributeError, IndexError, KeyError) as error:
        if not settings or os.environ.get("PATCHBAG_DEBUG"):
            raise
        raise ValueError(
            f"the recipe does not work with --set {' --set '.join(settings)}: {type(error).__name__}: {error}; "
            "PATCHBAG_DEBUG=1 shows where"
        ) from error
