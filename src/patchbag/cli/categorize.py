# SPDX-License-Identifier: BSD-3-Clause
"""The commands for a folder of labelled images: train, evaluate."""

import contextlib
import shlex
import sqlite3
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from patchbag.cli import options, screen
from patchbag.cli.files import check_outputs, describe_labelled, machine


@options.app.command()
def train(
    folder: options.FolderArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")] = Path("model.patchbag"),
    labels: options.LabelsOption = None,
    recipe: options.RecipeOption = "auto",
    features: options.FeaturesOption = None,
    settings: options.SetOption = None,
    jobs: options.JobsOption = -1,
    cluster: options.ClusterOption = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="For more images than fit into memory: descriptors are not kept, one vector per image goes to a "
            "temporary file. With recipes such as fisher, words or deep-fisher.",
        ),
    ] = False,
    vectors: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="With --stream: a folder that all workers share, or an fsspec address such as s3://bucket/folder, "
            "where workers keep the vectors while training; they are removed at the end.",
        ),
    ] = None,
    device: options.DeviceOption = "cpu",
    cache: options.CacheOption = True,
    max_pixels: options.PixelsOption = None,
    frame: options.FrameOption = None,
    channels: options.ChannelsOption = None,
    seed: options.SeedOption = 0,
    force: options.ForceOption = False,
) -> None:
    """Train a categorizer on a folder and write it to a file."""
    from patchbag.cli.advice import recommended
    from patchbag.collection import open_collection

    categorizer = options.make_categorizer(recipe, features, settings, seed)
    check_outputs(output, replaced=True, force=force)
    found = open_collection(folder, labels)
    if recipe == "auto" and features is None and not settings:
        recipe = recommended(found.labels.tolist())
        categorizer = options.make_categorizer(recipe, features, settings, seed)
    if recipe == "auto":
        found = as_many_as_auto_takes(found, seed)
    if vectors is not None and not stream:
        raise ValueError("--vectors says where vectors are kept with --stream; give both")
    if stream:
        from patchbag.streaming import require_streamable

        require_streamable(categorizer)
    with machine(jobs, cache and not stream, device=device, cluster=cluster), options.settings_to_blame(settings):
        if stream:
            images = train_streamed(found, categorizer, vectors)
        else:
            name_duplicates(found.labelled())
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


def as_many_as_auto_takes(found: Any, seed: int) -> Any:
    """Of more images than the kernels of ``auto`` have room for, a sample in which each class has its share."""
    from patchbag.classifiers.targets import encode_labels, in_proportion
    from patchbag.protocol import MOST_IMAGES
    from patchbag.runtime import check_random_state

    images = found.labelled()
    if len(images) <= MOST_IMAGES:
        return found
    screen.say(
        f"auto learns from {MOST_IMAGES:,} of the {len(images):,} images with a label, of each class its share: it "
        "compares every image with every other; --recipe deep-linear, or fisher --stream, learns from all",
        "yellow",
    )
    return images[in_proportion(encode_labels(images.labels)[1], MOST_IMAGES, check_random_state(seed))]


def train_streamed(found: Any, categorizer: Any, address: str | None) -> Any:
    """Train on the labelled images of a collection; gives those that could be read.

    Vectors are at an address that the workers know, or in a file of this command, which is deleted with it.
    """
    from patchbag.encodings.stored import scratch
    from patchbag.runtime import store_folder
    from patchbag.streaming import fit_streamed

    images = found.labelled()
    for remark in images.remarks:
        screen.say(remark, "yellow")
    place: Any = contextlib.nullcontext(store_folder() / "vectors.npy") if address is None else scratch(address)
    with place as path, screen.reporting("describing images") as progress:
        made = fit_streamed(categorizer, images.paths, images.labels, path, on_error="skip", progress=progress)
    screen.list_failures([(f.name, f.message) for f in made.failures], len(images))
    return images[sorted(made.kept)]


@options.app.command()
def evaluate(
    folder: options.FolderArgument,
    labels: options.LabelsOption = None,
    recipe: options.RecipeOption = "auto",
    features: options.FeaturesOption = None,
    train_per_class: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Random images per class that train; the rest tests. Default: half of the smallest class, up to 100, "
            "and 6,000 in all.",
        ),
    ] = None,
    splits: Annotated[int, typer.Option(metavar="N", min=1, help="Number of random splits.")] = 10,
    pool: Annotated[
        bool, typer.Option("--pool", help="Let the test images teach, without their labels; for recipes that can.")
    ] = False,
    seed: options.SeedOption = 0,
    settings: options.SetOption = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write every figure to this JSON file.")
    ] = None,
    report: Annotated[Path, typer.Option(help="The HTML report to write.")] = Path("patchbag-report.html"),
    jobs: options.JobsOption = -1,
    device: options.DeviceOption = "cpu",
    cache: options.CacheOption = True,
    max_pixels: options.PixelsOption = None,
    frame: options.FrameOption = None,
    channels: options.ChannelsOption = None,
    force: options.ForceOption = False,
) -> None:
    """Measure a recipe on a folder: accuracy over random splits, and an HTML report."""
    from patchbag.collection import open_collection
    from patchbag.evaluation import evaluate as run
    from patchbag.experiments.journal import Journal
    from patchbag.protocol import PerClassSplit, half_of_smallest

    categorizer = options.make_categorizer(recipe, features, settings, seed)
    if pool and not categorizer.takes_unlabelled:
        raise ValueError(f"recipe {recipe!r} does not learn from images without a label: leave --pool out")
    check_outputs(json_path, report, force=force)
    with machine(jobs, cache, device=device), options.settings_to_blame(settings):
        started = time.perf_counter()
        found = open_collection(folder, labels)
        labelled = found.labelled()
        # before minutes of describing, which can only leave images out
        next(PerClassSplit(train_per_class or half_of_smallest(labelled.labels)).split(labelled, labelled.labels))
        name_duplicates(labelled)
        images, described = describe_labelled(found, categorizer.pipeline()["features"])
        describing = time.perf_counter() - started
        truth = images.labels
        cv = PerClassSplit(train_per_class or half_of_smallest(truth), n_splits=splits, random_state=seed)
        journal = Journal(journal_of(folder) if cache else None)
        with screen.working("starting") as tell:
            chosen = {"cv": cv, "seed": seed, "names": images.paths, "progress": tell, "pool": pool}
            try:
                result = run(categorizer, described.bags, truth, journal=journal, **chosen)
            except KeyboardInterrupt:
                if journal.path is not None and len(journal):
                    screen.say("the splits that are done are kept; the same command goes on from there")
                raise
    result.recipe, result.describing = recipe, describing
    result.command = shlex.join(["patchbag", *sys.argv[1:]])
    if pool:
        result.protocol += "; test images taught without their labels"
    print_evaluation(result)
    write_evaluation(result, described.failures, json_path, report, folder.resolve().name)
    journal.remove()


def journal_of(folder: Path) -> Path:
    """Where the finished splits of an evaluation that was stopped are kept."""
    from patchbag.collection.files import folder_digest
    from patchbag.runtime import store_folder

    return store_folder() / "evaluations" / f"{folder_digest(folder)}.jsonl"


def name_duplicates(images: Any) -> None:
    """Warn of identical files with different labels: a classifier must be wrong on one of them."""
    from patchbag.collection.store import Store

    try:
        with Store().opened() as store:
            digests = [digest if status and status[0] else None for status, digest in store.digests(images.paths)]
    except (OSError, sqlite3.Error):  # what is wrong with the store is said where images are described
        return
    by_content: dict[Any, list[int]] = {}
    for i, digest in enumerate(digests):
        if digest is not None:
            by_content.setdefault(digest, []).append(i)
    labels = images.labels.tolist()
    mixed = [group for group in by_content.values() if len({labels[i] for i in group}) > 1]
    for group in mixed[:10]:
        said = " and ".join(f"{images.names[i]} ({labels[i]})" for i in group[:3])
        screen.say(f"the same image has different labels: {said}; all are used", "yellow")
    if len(mixed) > 10:
        screen.say(f"and {len(mixed) - 10} more such images", "yellow")


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
    from patchbag.storage.replacing import write_json

    problem: OSError | None = None
    if json_path is not None:
        left_out = [{"image": f.name, "reason": f.message} for f in failures]
        try:
            write_json(json_path, result.to_json() | {"left_out": left_out})
        except OSError as error:
            problem = error
    screen.result(f"report: {write_report(result, report, title, failures)}")
    if problem is not None:
        raise ValueError(f"cannot write {json_path}: {problem.strerror or problem}") from problem
