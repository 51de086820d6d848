# SPDX-License-Identifier: BSD-3-Clause
"""The commands for finding out: recipes, demo, reproduce, active, cache."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from patchbag.cli import screen
from patchbag.cli.files import check_output_folder, check_outputs, feature_cache, move_answers, readable_pool
from patchbag.cli.options import (
    CacheOption,
    JobsOption,
    RecipeOption,
    SeedOption,
    SetOption,
    app,
    make_categorizer,
    settings_to_blame,
)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show the parameters of this recipe.")] = None,
) -> None:
    """List the recipes, or the parameters of one."""
    from patchbag.categorizer import Categorizer
    from patchbag.evaluation import json_parameters
    from patchbag.recipes import RECIPES, make_recipe

    if name is None:
        table = Table("recipe", "what it does", "source", box=None, pad_edge=False)
        for recipe in RECIPES.values():
            table.add_row(f"[bold]{recipe.name}[/]", screen.literal(recipe.summary), screen.literal(recipe.paper))
        screen.print_table(table)
        return
    make_recipe(name)
    table = Table("parameter", "default", box=None, pad_edge=False)
    for key, value in json_parameters(Categorizer(name)).items():
        if key.startswith("recipe__"):
            table.add_row(key.removeprefix("recipe__").replace("__", "."), screen.literal(json.dumps(value)))
    screen.print_table(table)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the pictures, the model and the report.")
    ] = Path("patchbag-demo"),
    recipe: RecipeOption = "fisher",
) -> None:
    """Run the whole path on photographs that come with the installed packages, in under a minute."""
    from patchbag.categorizer import Categorizer
    from patchbag.demo import check_own, run_demo

    started = time.perf_counter()
    check_own(output)
    check_output_folder(output)
    with screen.working("cutting photographs into tiles") as tell:
        result = run_demo(Categorizer(recipe), output, progress=tell)
    screen.result(result.summary())
    screen.result(f"report: {result.report}\nmodel:  {result.model}")
    screen.say(f"{time.perf_counter() - started:.0f} s", "dim")


@app.command()
def reproduce(
    experiment: Annotated[
        str | None, typer.Argument(help="Name such as liu2010/scene15, or a TOML file; without it, a list.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="PATCHBAG_DATA", help="Folder that holds the data sets, one sub-folder each.")
    ] = None,
    splits: Annotated[
        int | None, typer.Option(min=1, help="Random splits, instead of the experiment's own number.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the JSON file and the plot.")] = Path(
        "results"
    ),
    jobs: JobsOption = -1,
    cache: CacheOption = True,
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
    journal = Journal(result_paths(spec["name"], output)[2])
    if len(journal):
        screen.say(f"going on from {len(journal)} figures in {journal.path}")
    with feature_cache(cache) as place, screen.working("starting") as tell:
        try:
            result = run_experiment(spec, data, splits=splits, n_jobs=jobs, cache=place, progress=tell, journal=journal)
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


@app.command()
def active(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder with a sub-folder a class, and images without a label in it or in unlabelled/."),
    ],
    labels: Annotated[
        Path | None, typer.Option(help="CSV or JSON file of the answers, taken up again; default FOLDER/labels.csv.")
    ] = None,
    recipe: RecipeOption = "gp-fisher",
    criterion: Annotated[
        str,
        typer.Option(
            "--criterion", "-c", help="uncertainty, margin, variance, influence, entropy, one_vs_all or random."
        ),
    ] = "uncertainty",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Labels to ask for; default: until you quit, 50 in a simulation.")
    ] = None,
    move: Annotated[
        bool,
        typer.Option("--move", help="Move images with an answer, now or earlier, into the sub-folder of their class."),
    ] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Replay a labelled folder against random choice and draw the curves.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Repetitions of a simulation.")] = 10,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where a simulation writes its .png and .json.")
    ] = Path("patchbag-active"),
    settings: SetOption = None,
    jobs: JobsOption = -1,
    cache: CacheOption = True,
    seed: SeedOption = 0,
) -> None:
    """Label images in the order in which it helps most, or simulate how much that saves."""
    from patchbag.active import CRITERIA, dialogue, terminal
    from patchbag.active.folder import LabelFile
    from patchbag.steps import apply_runtime

    if criterion not in CRITERIA:
        raise ValueError(f"--criterion must be one of {', '.join(CRITERIA)}; got {criterion!r}")
    categorizer = make_categorizer(recipe, settings, seed, False)
    book = LabelFile.open(labels or folder / "labels.csv")
    if simulate:
        if move:
            screen.say("--move is ignored: a simulation moves nothing", "yellow")
        if labels is not None:
            read = f"its answers ({len(book.answers)}) are read" if labels.exists() else "there is no such file"
            screen.say(f"--labels {labels}: {read}, and a simulation writes none", "yellow")
        check_outputs(Path(f"{output}.png"), Path(f"{output}.json"))
    elif folder.is_dir():  # else a folder that is misspelt would be made here
        check_outputs(book.path, replaced=True)
    if move and not simulate:
        images, moved = move_answers(folder, book)
        if moved and None not in images.labels:
            screen.result(terminal.next_step(images, book.path, move))
            return
    with feature_cache(cache) as place, settings_to_blame(settings):
        categorizer.set_params(n_jobs=jobs, cache=place)
        images = readable_pool(folder, book, categorizer, simulate)
        pipeline = apply_runtime(categorizer.pipeline(), n_jobs=jobs, cache=place, random_state=seed)
        with screen.working(f"comparing {len(images)} images"):
            kernel = terminal.pool_kernel(pipeline, images.full_paths(), None if simulate else images.labels)
    if simulate:
        with screen.working(f"simulating {runs} run{'' if runs == 1 else 's'}"):
            curves = terminal.learning_curves(kernel, images.labels, criterion, rounds or 50, runs, seed)
        screen.result(terminal.summarise(curves, rounds or 50))
        for path in terminal.write_curves(curves, output, f"{folder.resolve().name}, {recipe}"):
            screen.result(path)
        return
    screen.result(dialogue.help_text({label for label in images.labels if label is not None}))
    given = dialogue.label_images(
        images, kernel, book, ask=input, tell=screen.result, criterion=criterion, rounds=rounds, move=move, seed=seed
    )
    left = sum(label is None for label in images.labels)
    new = f"{given} new label{'' if given == 1 else 's'}"
    screen.result(f"{new}, {left} of {len(images)} images without one; see {book.path}")
    screen.result(terminal.next_step(images, book.path, move))


@app.command("cache")
def cache_command(
    clear: Annotated[bool, typer.Option("--clear", help="Delete the cached features.")] = False,
) -> None:
    """Show the cache of image features, or clear it."""
    from patchbag.features import cache

    if clear:
        screen.result(f"removed {cache.clear()} entries")
    info = cache.info()
    screen.result(f"{info.folder}: {info.entries} images, {info.bytes / 1e6:.1f} of {info.max_bytes / 1e6:.0f} MB")
