# SPDX-License-Identifier: BSD-3-Clause
"""The commands for finding out: recipes, demo, reproduce, cache."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from patchbag.cli import options, screen
from patchbag.cli.files import check_output_folder, check_outputs, machine


@options.app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show the parameters of this recipe.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All parameters, not only those that matter most.")] = False,
) -> None:
    """Say which recipe is for what, or which parameters of one matter."""
    from patchbag.categorizer import Categorizer
    from patchbag.cli.advice import ADVICE, MATTERING, measured
    from patchbag.evaluation import json_parameters
    from patchbag.recipes import RECIPES, make_recipe

    if name is None:
        table = Table(
            "recipe", "use when", "right", "train", "speed", "what it does", "source", box=None, pad_edge=False
        )
        for column in table.columns[2:5]:
            column.justify = "right"
        on_corel = measured()
        for known in [one for one in ADVICE if one in RECIPES] + [one for one in RECIPES if one not in ADVICE]:
            recipe, row = RECIPES[known], on_corel.get(known)
            figures = (f"{row.accuracy:.0f} %", f"{row.training:.1f} s", f"{row.speed:g}/s") if row else ("", "", "")
            cells = (ADVICE.get(known, ""), *figures, recipe.summary, recipe.paper)
            table.add_row(f"[bold]{screen.literal(known)}[/]", *map(screen.literal, cells))
        screen.print_table(table)
        screen.say(
            "right: of COREL-1000's 10 classes of photographs, with 10 labels per class; train: on these 100 images; "
            "speed: images per second, described and classified; both on one core",
            "dim",
        )
        return
    make_recipe(name)
    if name in ADVICE:
        screen.say(f"use when: {ADVICE[name]}")
    table = Table("parameter", "default", *([] if every else ["what it does"]), box=None, pad_edge=False)
    parameters = json_parameters(Categorizer(name))
    own = {key.removeprefix("recipe__"): value for key, value in parameters.items() if key.startswith("recipe__")}
    order = list(MATTERING)
    shown = [key for key in own if every or key.rsplit("__", 1)[-1] in MATTERING]
    if not every:
        shown = sorted(shown, key=lambda key: (order.index(key.rsplit("__", 1)[-1]), key))[:10]
    for key in shown:
        meaning = [] if every else [MATTERING[key.rsplit("__", 1)[-1]]]
        table.add_row(*map(screen.literal, (key.replace("__", "."), json.dumps(own[key]), *meaning)))
    screen.print_table(table)
    if len(shown) < len(own):
        screen.say(f"and {len(own) - len(shown)} more: patchbag recipes {name} --all", "dim")


@options.app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the pictures, the model and the report.")
    ] = Path("patchbag-demo"),
    recipe: options.RecipeOption = "auto",
) -> None:
    """Run the whole path on photographs that come with the installed packages, in under a minute."""
    from patchbag.categorizer import Categorizer
    from patchbag.demo import check_own, run_demo

    started = time.perf_counter()
    check_own(output)
    check_output_folder(output)
    with machine(-1, True), screen.working("cutting photographs into tiles") as tell:
        result = run_demo(Categorizer(recipe), output, progress=tell)
    screen.result(result.summary())
    screen.result(f"report: {result.report}\nmodel:  {result.model}")
    screen.say(f"{time.perf_counter() - started:.0f} s", "dim")


@options.app.command()
def reproduce(
    experiment: Annotated[
        str | None, typer.Argument(help="Name such as liu2010/scene15, or a TOML file; without it, a list.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="PATCHBAG_DATA", help="Folder that holds the data sets, one sub-folder each.")
    ] = None,
    splits: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Random splits, instead of the experiment's own number.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the JSON file and the plot.")] = Path(
        "results"
    ),
    jobs: options.JobsOption = -1,
    device: options.DeviceOption = "cpu",
    cache: options.CacheOption = True,
    max_pixels: options.PixelsOption = None,
    force: options.ForceOption = False,
) -> None:
    """Run a published experiment and print our figures beside the published ones.

    An experiment that was stopped goes on where it was when the same command is given again.
    """
    from patchbag.experiments import (
        Journal,
        list_experiments,
        load_experiment,
        result_paths,
        run_experiment,
        write_results,
    )

    if experiment is None:
        for name in list_experiments():
            title = screen.literal(load_experiment(name).get("title", ""))
            screen.out.print(f"[bold]{screen.literal(name)}[/]  {title}", highlight=False, soft_wrap=True)
        return
    spec = load_experiment(experiment)
    check_output_folder(output)
    *results, kept = result_paths(spec["name"], output)
    check_outputs(*results, force=force)
    journal = Journal(kept)
    if len(journal):
        screen.say(f"going on from {len(journal)} figures in {journal.path}")
    with machine(jobs, cache, device=device), screen.working("starting") as tell:
        try:
            result = run_experiment(spec, data, splits=splits, progress=tell, journal=journal)
        except KeyboardInterrupt:
            if len(journal):
                screen.say(f"{len(journal)} figures are kept; the same command goes on from there")
            raise
    title = screen.literal(result["title"] or result["name"])
    table = Table("run", "ours", "published", "seconds", title=title, box=None, pad_edge=False)
    for run in result["runs"]:
        spread = f" ± {run['std']:.2f}" if run.get("std") else ""
        published = "" if run.get("published") is None else f"{run['published']:g}"
        seconds = f"{run.get('seconds') or 0:.0f}"
        table.add_row(screen.literal(run["name"]), f"{run['mean']:.2f}{spread}", published, seconds)
    screen.print_table(table)
    for path in write_results(result, output):
        screen.result(path)
    journal.remove()


@options.app.command("cache")
def cache_command(
    clear: Annotated[bool, typer.Option("--clear", help="Delete the stored features.")] = False,
) -> None:
    """Show the store of image features and indexes, or clear it."""
    from patchbag.collection.store import Store
    from patchbag.search.folder_index import clear_indexes, list_indexes

    if clear:
        screen.result(f"removed {Store().clear()} entries" + _of_indexes(clear_indexes()))
    info = Store().info()
    used = f"{info.entries} images, {info.bytes / 1e6:.1f} of {info.max_bytes / 1e6:.0f} MB"
    screen.result(f"{info.folder}: {used}" + _of_indexes(len(list_indexes())))


def _of_indexes(number: int) -> str:
    return f", {number} search index{'' if number == 1 else 'es'}" if number else ""
