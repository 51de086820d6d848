# SPDX-License-Identifier: BSD-3-Clause
"""The commands for a folder of images: train, predict, evaluate."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from patchbag.cli import screen
from patchbag.cli.files import check_outputs, describe_images, describe_labelled, machine
from patchbag.cli.options import (
    CacheOption,
    FeaturesOption,
    FolderArgument,
    JobsOption,
    LabelsOption,
    RecipeOption,
    SeedOption,
    SetOption,
    app,
    make_categorizer,
    settings_to_blame,
)


@app.command()
def train(
    folder: FolderArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")] = Path("model.patchbag"),
    labels: LabelsOption = None,
    recipe: RecipeOption = "auto",
    features: FeaturesOption = None,
    settings: SetOption = None,
    jobs: JobsOption = -1,
    cache: CacheOption = True,
    seed: SeedOption = 0,
) -> None:
    """Train a categorizer on a folder and write it to a file."""
    from patchbag.collection import open_collection
    from patchbag.recipes import recommended

    categorizer = make_categorizer(recipe, features, settings, seed)
    check_outputs(output, replaced=True)
    found = open_collection(folder, labels)
    if recipe == "auto" and features is None and not settings:
        recipe = recommended(found.labels.tolist())
        categorizer = make_categorizer(recipe, features, settings, seed)
    with machine(jobs, cache), settings_to_blame(settings):
        images, described = describe_labelled(
            found, categorizer.pipeline()["features"], unlabelled=categorizer.takes_unlabelled
        )
        with screen.working(f"training {recipe} on {len(images)} images of {len(images.classes)} classes"):
            categorizer.fit(described.bags, images.labels)
    categorizer.save(output)
    size = output.stat().st_size / 1e6
    bare = len(images.unlabelled())
    many = f"{len(images)} images" + (f" ({bare} of them without a label)" if bare else "")
    screen.result(f"{output}: {recipe}, {many}, {len(images.classes)} classes, {size:.1f} MB")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model written by 'patchbag train'.")],
    images: Annotated[list[str], typer.Argument(help="Image files, folders and glob patterns.")],
    top: Annotated[int, typer.Option("--top", "-k", min=1, help="How many classes to show for each image.")] = 3,
    reject: Annotated[
        float,
        typer.Option(min=0, max=1, help="Flag images of at most this typicality as unlike anything seen."),
    ] = 0.05,
    coverage: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.99, help="Show a set of classes that holds the true one so often, e.g. 0.9."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, with every probability.")] = False,
    jobs: JobsOption = -1,
    cache: CacheOption = True,
) -> None:
    """Say what is in images, and how sure that is."""
    from patchbag.categorizer import Categorizer
    from patchbag.collection import open_collection

    categorizer = Categorizer.load(model)
    found = open_collection(images)
    paths = found.names
    with machine(jobs, cache):
        described = describe_images(found, categorizer.recipe_["features"])
        judged = categorizer.judge(described.bags, coverage or 0.9) if len(described.kept) else None
    good = [paths[i] for i in described.kept]
    if judged is not None:
        names = [str(c) for c in categorizer.classes_]
        print_predictions(good, judged, names, top, reject, coverage is not None, as_json)
    if as_json:
        for failure in described.failures:
            print(json.dumps({"image": paths[failure.index], "error": failure.message}))
    if not good:
        raise typer.Exit(1)


UNLIKE = "unlike anything seen"


def print_predictions(
    paths: list[str], judged: Any, names: list[str], top: int, reject: float, with_sets: bool, as_json: bool
) -> None:
    """JSON lines, a table on a terminal, or tab-separated lines for the next program in a pipe."""
    table = Table("image", "label", "probability", "or" if with_sets else "next", "", box=None, pad_edge=False)
    table.columns[0].overflow = "fold"
    for path, row, members, typical in zip(paths, *judged):
        order = [int(i) for i in row.argsort()[::-1]]
        shown = [i for i in order if members[i]] if with_sets else order[:top]
        best, strange = names[order[0]], bool(typical <= reject)
        if as_json:
            ranked = {names[i]: round(float(row[i]), 6) for i in order}
            found = {"image": path, "label": best, "probability": ranked[best], "probabilities": ranked}
            found |= {"set": [names[i] for i in order if members[i]]} if with_sets else {}
            print(json.dumps({**found, "typicality": round(float(typical), 4), "unlike_anything_seen": strange}))
        elif screen.out.is_terminal:
            others = ", ".join(f"{names[i]} {100 * row[i]:.0f} %" for i in shown[1:])
            share = f"{100 * row[order[0]]:.1f} %"
            label = screen.literal(best) if strange else f"[bold]{screen.literal(best)}[/]"
            note = f"[yellow]{UNLIKE}[/]" if strange else ""
            table.add_row(screen.literal(path), label, share, screen.literal(others), note)
        else:
            ranked_fields = [f"{names[i]}\t{row[i]:.4f}" for i in shown]
            print("\t".join([path, *ranked_fields, *([UNLIKE] if strange else [])]))
    if table.row_count:
        screen.print_table(table)


@app.command()
def evaluate(
    folder: FolderArgument,
    labels: LabelsOption = None,
    recipe: RecipeOption = "auto",
    features: FeaturesOption = None,
    train_per_class: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Random images per class that train; the rest tests. Default: half of the smallest class, up to 100.",
        ),
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="Number of random splits.")] = 10,
    pool: Annotated[
        bool, typer.Option("--pool", help="Test images teach without their labels, where a recipe learns from such.")
    ] = False,
    seed: SeedOption = 0,
    settings: SetOption = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write every figure to this JSON file.")
    ] = None,
    report: Annotated[Path, typer.Option(help="The HTML report to write.")] = Path("patchbag-report.html"),
    jobs: JobsOption = -1,
    cache: CacheOption = True,
) -> None:
    """Measure a recipe on a folder: accuracy over random splits, and an HTML report."""
    from patchbag.collection import open_collection
    from patchbag.evaluation import evaluate as run
    from patchbag.protocol import PerClassSplit, half_of_smallest

    categorizer = make_categorizer(recipe, features, settings, seed)
    if pool and not categorizer.takes_unlabelled:
        raise ValueError(f"recipe {recipe!r} does not learn from images without a label, so --pool has no use for it")
    check_outputs(json_path, report)
    with machine(jobs, cache), settings_to_blame(settings):
        started = time.perf_counter()
        found = open_collection(folder, labels)
        images, described = describe_labelled(found, categorizer.pipeline()["features"])
        describing = time.perf_counter() - started
        truth = images.labels
        cv = PerClassSplit(train_per_class or half_of_smallest(truth), n_splits=splits, random_state=seed)
        with screen.working("starting") as tell:
            options = {"cv": cv, "seed": seed, "names": images.paths, "progress": tell, "pool": pool}
            result = run(categorizer, described.bags, truth, **options)
    result.recipe, result.describing = recipe, describing
    if pool:
        result.protocol += "; test images taught without their labels"
    print_evaluation(result)
    write_evaluation(result, described.failures, json_path, report, folder.resolve().name)


def print_evaluation(result: Any) -> None:
    """The accuracy, and where the time went."""
    seconds = result.seconds()
    total = seconds.pop("total")
    table = Table("step", "seconds", "share", box=None, pad_edge=False)
    table.columns[1].justify = table.columns[2].justify = "right"
    for name, value in seconds.items():
        table.add_row(screen.literal(name), f"{value:.2f}", f"{100 * value / total:.0f} %")
    table.add_row("total", f"{total:.2f}", f"{result.images_per_second():.0f} images/s")
    screen.print_table(table, screen.err)
    spread = f" ± {100 * result.std_accuracy:.2f}" if len(result.splits) > 1 else ""
    figure = f"{100 * result.mean_accuracy:.2f}{spread} % mean per-class accuracy"
    screen.result(f"{result.recipe}: {figure} ({result.protocol})")


def write_evaluation(result: Any, failures: list[Any], json_path: Path | None, report: Path, title: str) -> None:
    """The JSON file and the report; if one cannot be written, the other is, and then the error is raised."""
    from patchbag.report import write_report

    problem: OSError | None = None
    if json_path is not None:
        data = result.to_json()
        data["left_out"] = [{"image": f.name, "reason": f.message} for f in failures]
        try:
            json_path.parent.mkdir(parents=True, exist_ok=True)
            json_path.write_text(json.dumps(data, indent=1), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            problem = error
    screen.result(f"report: {write_report(result, report, title, failures)}")
    if problem is not None:
        raise ValueError(f"cannot write {json_path}: {problem.strerror or problem}") from problem
