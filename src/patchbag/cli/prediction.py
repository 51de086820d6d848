# SPDX-License-Identifier: BSD-3-Clause
"""The commands for a model: predict, undo, info.

Images are described and judged in blocks, and what goes to a file or to the next program goes there block by block: a
run over a large folder that is stopped has said what it knew.
"""

import csv
import filecmp
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.table import Table

from patchbag.cli import options, screen
from patchbag.cli.files import check_output_folder, check_outputs, free_path, machine, say_how_read

BLOCK = 64
UNLIKE = "unlike anything seen"
COLUMNS = ("image", "label", "probability", "typicality", "unlike_anything_seen", "error")  # of the file

Answer = dict[str, Any]
Emit = Callable[[Answer], None]


@options.app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model written by 'patchbag train'.")],
    images: Annotated[list[str], typer.Argument(help="Image files, folders and glob patterns.")],
    top: Annotated[
        int, typer.Option("--top", "-k", metavar="N", min=1, help="How many classes to show for each image.")
    ] = 3,
    reject: Annotated[
        float,
        typer.Option(min=0, max=1, help="Flag images of at most this typicality as unlike anything seen."),
    ] = 0.05,
    coverage: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.99, help="Show a set of classes that holds the true one so often, e.g. 0.9."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, with every probability.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write every probability to this file as well: FILE.csv, FILE.jsonl or FILE.parquet."
        ),
    ] = None,
    sort_into: Annotated[
        Path | None,
        typer.Option(help="Copy every image into the sub-folder of its class in this folder; an undo file lists them."),
    ] = None,
    link: Annotated[bool, typer.Option("--link", help="With --sort-into: links in place of copies.")] = False,
    jobs: options.JobsOption = -1,
    device: options.DeviceOption = "cpu",
    cache: options.CacheOption = True,
    max_pixels: options.PixelsOption = None,
    frame: options.FrameOption = None,
    channels: options.ChannelsOption = None,
    force: options.ForceOption = False,
) -> None:
    """Say what is in images, and how sure that is."""
    import numpy as np

    from patchbag.categorizer import Categorizer
    from patchbag.collection import open_collection

    categorizer = Categorizer.load(model)
    classes = [str(c) for c in categorizer.classes_]
    check_outputs(output, force=force)
    if sort_into is not None:
        check_output_folder(sort_into)
    found = open_collection(images)
    for remark in found.remarks:
        screen.say(remark, "yellow")
    failures: list[Any] = []
    with (
        printing(top, coverage is not None, as_json) as show,
        writing(output, classes, coverage is not None) as write,
        sorting(sort_into, link) as place,
        machine(jobs, cache, device=device),
        screen.counting("looking at images", len(found)) as step,
    ):
        for start in range(0, len(found), BLOCK):
            part = found[np.arange(start, min(start + BLOCK, len(found)))]
            described = part.describe(categorizer.recipe_["features"], progress=lambda done, total: step())
            failures += described.failures
            good = [part.names[i] for i in described.kept]
            judged: Any = categorizer.judge(described.bags, coverage or 0.9) if good else ([], [], [])
            for path, row, members, typical in zip(good, *judged, strict=True):
                answer = answer_of(path, row, members, float(typical), classes, reject)
                show(answer)
                write(answer)
                place(answer)
            for failure in described.failures:
                write({"image": part.names[failure.index], "error": failure.message})
                if as_json:
                    print(json.dumps({"image": part.names[failure.index], "error": failure.message}), flush=True)
    screen.list_failures([(f.name, f.message) for f in failures], len(found))
    say_how_read(found.paths, categorizer.recipe_["features"].reads()[0])
    if output is not None:
        screen.say(f"{output}: {len(found) - len(failures)} images")
    if sort_into is not None:
        screen.say(f"{sort_into}: {len(found) - len(failures)} images; {sort_into / UNDO} lists what was put there")
    if len(failures) == len(found):
        raise typer.Exit(1)


def answer_of(path: str, row: Any, members: Any, typical: float, classes: list[str], reject: float) -> Answer:
    """What a model says of one image: classes by falling probability, the set, and whether it knows such images."""
    order = [int(i) for i in row.argsort()[::-1]]
    ranked = {classes[i]: round(float(row[i]), 6) for i in order}
    return {
        "image": path,
        "label": classes[order[0]],
        "probability": ranked[classes[order[0]]],
        "probabilities": ranked,
        "set": [classes[i] for i in order if members[i]],
        "typicality": round(typical, 4),
        "unlike_anything_seen": bool(typical <= reject),
    }


def as_line(answer: Answer, with_sets: bool) -> str:
    """One line of JSON; the set only where its coverage was asked for."""
    return json.dumps(answer if with_sets else {k: v for k, v in answer.items() if k != "set"})


@contextmanager
def printing(top: int, with_sets: bool, as_json: bool) -> Iterator[Emit]:
    """JSON lines, a table on a terminal, or tab-separated lines for the next program in a pipe."""
    table = Table("image", "label", "probability", "or" if with_sets else "next", "", box=None, pad_edge=False)
    table.columns[0].overflow = "fold"

    def show(answer: Answer) -> None:
        p, strange = answer["probabilities"], answer["unlike_anything_seen"]
        shown = answer["set"] if with_sets else list(p)[:top]
        if as_json:
            print(as_line(answer, with_sets), flush=True)
        elif screen.out.is_terminal:
            others = ", ".join(f"{name} {100 * p[name]:.0f} %" for name in shown[1:])
            label = screen.literal(answer["label"]) if strange else f"[bold]{screen.literal(answer['label'])}[/]"
            note = f"[yellow]{UNLIKE}[/]" if strange else ""
            share = f"{100 * answer['probability']:.1f} %"
            table.add_row(screen.literal(answer["image"]), label, share, screen.literal(others), note)
        else:
            fields = [f"{name}\t{p[name]:.4f}" for name in shown]
            print("\t".join([answer["image"], *fields, *([UNLIKE] if strange else [])]), flush=True)

    yield show
    if table.row_count:
        screen.print_table(table)


@contextmanager
def writing(path: Path | None, classes: list[str], with_sets: bool) -> Iterator[Emit]:
    """A table with a column per class, or JSON lines, by the name of the file."""
    if path is None:
        yield lambda answer: None
        return
    if path.suffix.lower() == ".parquet":
        yield from _parquet(path, classes)
        return
    if path.suffix.lower() not in (".csv", ".jsonl"):
        raise ValueError(
            f"{path}: predictions are written as .csv, .jsonl or .parquet, got {path.suffix or 'no suffix'}"
        )
    from patchbag.collection.tables import plain_cell

    with appending(path, "w") as (file, named):
        writer = csv.DictWriter(file, [*COLUMNS, *(f"p({name})" for name in classes)], extrasaction="ignore")
        if path.suffix.lower() == ".csv":
            writer.writeheader()

        def write(answer: Answer) -> None:
            with named():
                if path.suffix.lower() == ".jsonl":
                    print(as_line(answer, with_sets), file=file)
                else:
                    row = answer | {f"p({name})": p for name, p in answer.get("probabilities", {}).items()}
                    writer.writerow({name: plain_cell(value) for name, value in row.items()})
                file.flush()

        yield write


@contextmanager
def appending(path: Path, mode: str) -> Iterator[tuple[IO[str], Callable[[], AbstractContextManager[None]]]]:
    """A text file that grows line by line, and a context around writing to it in which errors name it."""
    from patchbag.storage.replacing import naming

    file = path.open(mode, encoding="utf-8", errors="surrogateescape", newline="")
    try:
        yield file, partial(naming, path)
    finally:
        with naming(path):
            file.close()


def _parquet(path: Path, classes: list[str]) -> Iterator[Emit]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"{path}: .parquet files need pyarrow: pip install pyarrow") from None
    from patchbag.storage.replacing import replacing

    rows: list[Answer] = []
    yield rows.append
    table = {name: [row.get(name) for row in rows] for name in COLUMNS}
    table |= {f"p({name})": [row.get("probabilities", {}).get(name) for row in rows] for name in classes}
    with replacing(path) as file:
        pyarrow.parquet.write_table(pyarrow.table(table), file)


UNDO = "undo.csv"


@contextmanager
def sorting(folder: Path | None, link: bool) -> Iterator[Emit]:
    """Copies of images, or links to them, in the sub-folders of their classes; nothing that is there is replaced.

    What was put there is listed in the file ``undo.csv`` before it is put there: deleting the files that it names, by
    hand or with ``patchbag undo``, leaves everything as it was.
    """
    if folder is None:
        yield lambda answer: None
        return
    from patchbag.collection.folder import is_class_name

    def place(answer: Answer) -> None:
        label = UNLIKE if answer["unlike_anything_seen"] else answer["label"]
        name = label if is_class_name(label) else "".join(c if c.isalnum() else "_" for c in label)
        wanted, source = f"{name}/{Path(answer['image']).name}", os.path.abspath(answer["image"])
        if (wanted, source) in listed and (folder / wanted).exists():  # the same command again
            return
        target = folder / free_path(folder, wanted)
        target.parent.mkdir(exist_ok=True)
        with named():
            writer.writerow([target.relative_to(folder).as_posix(), source])
            file.flush()
        if link:
            target.symlink_to(source)
            return
        try:
            shutil.copy2(source, target)
        except BaseException:  # half a copy is none
            target.unlink(missing_ok=True)
            raise

    listed = {(row.get("file"), row.get("of")) for row in undo_rows(folder)}
    new = not (folder / UNDO).exists()
    with appending(folder / UNDO, "a") as (file, named):
        writer = csv.writer(file)
        if new:
            writer.writerow(["file", "of"])
        yield place


def undo_rows(folder: Path) -> list[dict[str, str]]:
    """What the undo file of a folder lists; nothing where there is none (a device, which may never end, is none)."""
    if not (folder / UNDO).is_file():
        return []
    with (folder / UNDO).open(encoding="utf-8", errors="surrogateescape", newline="") as f:
        return list(csv.DictReader(f))


@options.app.command()
def undo(
    folder: Annotated[Path, typer.Argument(help="A folder that 'patchbag predict --sort-into' has filled.")],
) -> None:
    """Delete the copies and links that 'predict --sort-into' has made, and nothing else."""
    from patchbag.collection.folder import check_folder

    check_folder(folder)
    if not (folder / UNDO).is_file():
        raise ValueError(f"{folder} has no {UNDO} that says what 'predict --sort-into' put there")
    root, removed, kept = folder.resolve(), 0, 0
    for row in undo_rows(folder):
        target = folder / (row.get("file") or "")
        inside = target.parent.resolve().parent == root and target.name
        source = Path(row.get("of") or "")
        same = target.is_symlink() or (
            target.is_file() and source.is_file() and filecmp.cmp(target, source, shallow=False)
        )
        if inside and same:  # a copy that was edited since, or whose original is gone, is someone's work by now
            target.unlink()
            removed += 1
            with suppress(OSError):
                target.parent.rmdir()
        else:
            kept += target.exists()
    if not kept:
        (folder / UNDO).unlink()
    files = screen.count(removed, "file")
    screen.result(f"{folder}: removed {files}" + (f", kept {kept} that are not copies any more" if kept else ""))


@options.app.command()
def info(model: Annotated[Path, typer.Argument(help="A model written by 'patchbag train'.")]) -> None:
    """Show what a model is: its recipe, its classes, and what it has learned."""
    from patchbag.categorizer import Categorizer
    from patchbag.recipes import RECIPES

    categorizer = Categorizer.load(model)
    names = [str(c) for c in categorizer.classes_]
    recipe = categorizer.recipe if isinstance(categorizer.recipe, str) else "settings of its own"
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("file", f"{screen.literal(model)}, {model.stat().st_size / 1e6:.1f} MB")
    what = f": {RECIPES[recipe].summary} ({RECIPES[recipe].paper})" if recipe in RECIPES else ""
    table.add_row("recipe", screen.literal(f"{recipe}{what}"))
    table.add_row("classes", screen.literal(f"{len(names)}: {', '.join(names)}"))
    page, channels = categorizer.recipe_["features"].reads()
    if (page, channels) != (0, None):
        of_channels = "" if channels is None else f", channels {','.join(map(str, channels))}"
        table.add_row("reads of files", f"page {page}{of_channels}")
    classifier = categorizer.recipe_[-1]
    left_out = getattr(classifier, "left_out_", None)
    if left_out is not None:
        table.add_row("left out to learn how sure", f"{len(left_out.own)} training images")
    if hasattr(classifier, "prototypes_"):
        table.add_row("training images that vote", str(len(classifier.prototypes_)))
    table.add_row("steps", screen.literal(" → ".join(type(step).__name__ for _, step in categorizer.recipe_.steps)))
    screen.print_table(table)
