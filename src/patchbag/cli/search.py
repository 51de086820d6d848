# SPDX-License-Identifier: BSD-3-Clause
"""The commands for finding images: index, search, duplicates."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from patchbag.cli import screen
from patchbag.cli.files import check_outputs
from patchbag.cli.options import ForceOption, JobsOption, PixelsOption, QuickCommand, app

THUMBNAIL = 18  # characters
STDIN = "-"

ByOption = Annotated[
    str,
    typer.Option(
        "--by", "-b", help="What images are compared by: deep, fisher, sift, color, vlad, words, klk, ppk, smp."
    ),
]
FolderToSearch = Annotated[Path, typer.Argument(help="Folder of images, with all its sub-folders.")]
ThumbnailsOption = Annotated[
    bool, typer.Option("--thumbnails/--no-thumbnails", help="Show small pictures, where there is a terminal.")
]
PageOption = Annotated[
    Path | None, typer.Option("--page", metavar="FILE.html", help="Write the results as a page of thumbnails, too.")
]


@app.command()
def index(
    folder: FolderToSearch,
    by: ByOption = "deep",
    compress: Annotated[
        bool | None,
        typer.Option(
            "--compress/--no-compress",
            help="Keep a small code of every vector: a search reads these. From 200,000 images on it is done anyway.",
            show_default=False,
        ),
    ] = None,
    jobs: JobsOption = -1,
    max_pixels: PixelsOption = None,
) -> None:
    """Make a folder ready to be searched, or bring its index up to date."""
    started = time.perf_counter()
    found = open_index(folder, by, jobs, tell=True, compress=compress)
    changes = found.changes
    parts = [f"{number} {what}" for number, what in zip(changes, ("new", "moved", "gone")) if number]
    size = f"{found.vectors.nbytes / 1e6:.1f} MB"
    if found.compressed is not None:
        size += f", codes {found.compressed.nbytes / 1e6:.1f} MB"
    done = f"{', '.join(parts) or 'nothing new'}; {size}, {time.perf_counter() - started:.1f} s"
    screen.result(f"{folder}: {count(len(found), 'image')} by {by} ({done})")


@app.command(cls=QuickCommand)
def search(
    folder: FolderToSearch,
    images: Annotated[list[str], typer.Argument(help="Images to search by: files, or - for standard input.")],
    top: Annotated[int, typer.Option("--top", "-k", min=1, help="How many images to find for each.")] = 10,
    by: ByOption = "deep",
    crop: Annotated[
        str | None,
        typer.Option(
            metavar="L,T,R,B", help="Search by a part: left, top, right, bottom as shares of width and height."
        ),
    ] = None,
    diffuse: Annotated[
        bool | None,
        typer.Option(
            "--diffuse/--no-diffuse",
            help="Rank by diffusion: like the query is what many images like it are like. "
            "Done anyway by fisher, sift, color, vlad.",
            show_default=False,
        ),
    ] = None,
    expand: Annotated[
        int, typer.Option(min=0, metavar="N", help="Search again by the image and the first N results together.")
    ] = 0,
    verify: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Of the first N results put those first that show the very same thing."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line and query.")] = False,
    page: PageOption = None,
    thumbnails: ThumbnailsOption = True,
    jobs: JobsOption = -1,
    max_pixels: PixelsOption = None,
    force: ForceOption = False,
) -> None:
    """Find the images of a folder that are most like others; the index is made, or brought up to date, on the way."""
    part = None if crop is None else parse_crop(crop)
    queries = [read_query(image) for image in images]
    check_outputs(page, force=force)
    found = open_index(folder, by, jobs)
    results = found.search_many(queries, top, crop=part, diffuse=diffuse, expand=expand, verify=verify)
    good = [(name, matches) for name, matches in zip(images, results) if isinstance(matches, list)]
    for name, matches in zip(images, results):
        if isinstance(matches, list):
            print_matches(name, matches, as_json, thumbnails)
            if not matches and not as_json:
                screen.say(f"{name} is the only image of {folder}")
        elif as_json:
            print(json.dumps({"query": name, "error": str(matches)}))
        else:
            screen.error(matches)
    if page is not None and good:
        from patchbag.search.page import write_page

        rows = [[(name, "query"), *((m.image, figure(m)) for m in matches)] for name, matches in good]
        screen.say(f"page: {write_page(page, f'{folder.resolve().name}, by {by}', rows)}")
    if not good:
        raise typer.Exit(1)


def open_index(folder: Path, by: str, jobs: int, tell: bool = False, compress: bool | None = None) -> Any:
    """The index of a folder, up to date, with a progress bar where that takes a while; says what cannot be read."""
    from patchbag.search import SearchIndex

    found = SearchIndex(folder, by, n_jobs=jobs, compress=compress)
    with screen.reporting("describing images") as progress:
        found.update(progress)
    failures = list(found.failures.items())
    if failures and (tell or found.changes):
        screen.say(f"left out {count(len(failures), 'file')} of {len(failures) + len(found)}:", "yellow")
        for name, message in failures[:20]:
            screen.say(f"  {name}: {message}")
        if len(failures) > 20:
            screen.say(f"  and {len(failures) - 20} more")
    return found


def read_query(image: str) -> Any:
    """A path as it is, the bytes of standard input for "-"; addresses are refused."""
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+://", image):
        raise ValueError(f"{image} is an address; nothing is fetched from a network: save the image and name its file")
    if image != STDIN:
        return image
    if sys.stdin.isatty():
        raise ValueError(
            "- reads an image from standard input, which is the keyboard: cat image.jpg | patchbag search …"
        )
    return sys.stdin.buffer.read()


def parse_crop(text: str) -> list[float]:
    """ "0.1,0.2,0.5,0.8" → four shares."""
    from patchbag.search.regions import check_crop

    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"--crop takes four numbers, such as 0.25,0.25,0.75,0.75; got {text!r}") from None
    return list(check_crop(numbers))


def print_matches(query: str, matches: list[Any], as_json: bool, thumbnails: bool) -> None:
    """A JSON line, a table on a terminal, or tab-separated lines for the next program in a pipe."""
    if as_json:
        results: list[dict[str, Any]] = []
        for match in matches:
            results.append({"image": match.image, "distance": round(match.distance, 6)})
            if match.points is not None:
                results[-1]["points"] = match.points
        print(json.dumps({"query": query, "results": results}))
    elif screen.out.is_terminal:
        print_table(query, [(match.image, figure(match)) for match in matches], "distance", thumbnails)
    else:
        for match in matches:
            print(f"{query}\t{match.image}\t{match.distance:.6f}")


def figure(match: Any) -> str:
    """The distance of a match, and how many of its local features agree, where that is known."""
    return f"{match.distance:.3f}" if match.points is None else f"{match.distance:.3f}, {count(match.points, 'point')}"


def print_table(title: str, rows: list[tuple[str, str]], what: str, thumbnails: bool) -> None:
    """Images with a figure each, and small pictures of them."""
    from rich.table import Table
    from rich.text import Text

    from patchbag.cli.pictures import small_picture

    table = Table("", what, "image", title=screen.literal(title), title_justify="left", box=None, pad_edge=False)
    table.columns[2].overflow = "fold"
    for path, figure in rows:
        shown = Text.from_ansi(small_picture(path, THUMBNAIL)) if thumbnails else ""
        table.add_row(shown, figure, screen.literal(path))
    screen.print_table(table)


def count(number: int, what: str) -> str:
    """ "1 image", "2 images"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


@app.command()
def duplicates(
    folder: FolderToSearch,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line and group.")] = False,
    page: PageOption = None,
    thumbnails: ThumbnailsOption = True,
    jobs: JobsOption = -1,
    max_pixels: PixelsOption = None,
    force: ForceOption = False,
) -> None:
    """Find copies of pictures in a folder: the same bytes, or resized, compressed, recoloured or cropped."""
    check_outputs(page, force=force)
    found = open_index(folder, "deep", jobs)
    from patchbag.search.duplicates import find_duplicates

    with screen.reporting("comparing images") as progress:
        groups, pairs = find_duplicates(found, progress)
    shown = [describe_group(found.paths, group, pairs) for group in groups]
    for rows in shown:
        if as_json:
            print(json.dumps({"images": [path for path, _ in rows], "kinds": [kind for _, kind in rows]}))
        elif screen.out.is_terminal:
            print_table("", rows, "is", thumbnails)
        else:
            print("\t".join(path for path, _ in rows))
    if page is not None and shown:
        from patchbag.search.page import write_page

        screen.say(f"page: {write_page(page, f'{folder.resolve().name}, copies', shown)}")
    extra = sum(len(group) - 1 for group in groups)
    copies = f"{extra:,} {'copy' if extra == 1 else 'copies'} of {count(len(groups), 'picture')}"
    screen.say(f"{copies if groups else 'no copies'} among {count(len(found), 'image')}")


KINDS = {"identical": "the same file", "whole": "the same picture", "part": "a part or larger view"}


def describe_group(paths: list[str], group: list[int], pairs: list[Any]) -> list[tuple[str, str]]:
    """The images of a group, the largest picture first, and what each of the others is to another one of the group."""
    from patchbag.images import load_image

    sizes = {row: load_image(paths[row], max_side=64).original_size for row in group}  # decoded for the index just now
    order = sorted(group, key=lambda row: (-sizes[row][0] * sizes[row][1], row))
    kinds: dict[int, str] = {}
    for pair in pairs:
        if pair.first in sizes:
            for row in (pair.first, pair.second):
                kinds.setdefault(row, KINDS[pair.kind])
    rows = []
    for place, row in enumerate(order):
        what = "" if place == 0 else f"{kinds[row]}, "
        rows.append((paths[row], f"{what}{sizes[row][0]}×{sizes[row][1]}"))
    return rows
