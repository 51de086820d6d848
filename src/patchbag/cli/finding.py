# SPDX-License-Identifier: BSD-3-Clause
"""What the commands index, search and duplicates do.

A search in a built index takes less time than to import typer: ``plain_search`` reads what most searches are asked, and
leaves the others to :mod:`patchbag.cli.search`, where all options are declared.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from patchbag.cli import screen
from patchbag.cli.screen import count

THUMBNAIL = 18  # characters
STDIN = "-"
ANY_SIZE = "images of any size can be compared --by deep"
NUMBERS = {"--top": "top", "-k": "top"}
WORDS = {"--by": "by", "-b": "by", "--crop": "crop"}
FLAGS = {"--json": ("as_json", True), "--diffuse": ("diffuse", True), "--no-diffuse": ("diffuse", False)}


def plain_search(arguments: Sequence[str]) -> dict[str, Any] | None:
    """The parameters of ``find`` for a command line; None where it is another command or typer has to read it.

    >>> plain_search(["search", "photos", "a.jpg", "b.jpg", "-k", "5"])["images"]
    ['a.jpg', 'b.jpg']
    >>> plain_search(["search", "photos", "a.jpg", "--page", "found.html"]) is None
    True
    """
    if arguments[:1] != ["search"] or "_PATCHBAG_COMPLETE" in os.environ:
        return None
    found: dict[str, Any] = {}
    names: list[str] = []
    rest = iter(arguments[1:])
    for word in rest:
        if word in FLAGS:
            found |= [FLAGS[word]]
        elif word in NUMBERS and (number := next(rest, "")).isdecimal() and int(number) > 0:
            found[NUMBERS[word]] = int(number)
        elif word in WORDS and not (text := next(rest, "-")).startswith("-"):
            found[WORDS[word]] = text
        elif word == STDIN or not word.startswith("-"):
            names.append(word)
        else:
            return None
    return {"folder": Path(names[0]), "images": names[1:], **found} if len(names) > 1 else None


def find(
    folder: Path,
    images: Sequence[str],
    *,
    top: int = 10,
    by: str = "deep",
    crop: str | None = None,
    diffuse: bool | None = None,
    expand: int = 0,
    verify: int = 0,
    as_json: bool = False,
    page: Path | None = None,
    thumbnails: bool = True,
    jobs: int = -1,
    force: bool = False,
) -> bool:
    """Print what is most like some images; False where none of them can be read."""
    part = None if crop is None else parse_crop(crop)
    queries = [read_query(image) for image in images]
    if diffuse or expand:  # before a folder is described in vain
        from patchbag.search.representations import find_representation

        find_representation(by).require_angles()
    if page is not None:
        from patchbag.cli.files import check_outputs

        check_outputs(page, force=force)
    found = open_index(folder, by, jobs)
    results = found.search_many(queries, top, crop=part, diffuse=diffuse, expand=expand, verify=verify)
    good = [(name, matches) for name, matches in zip(images, results) if isinstance(matches, list)]
    for name, matches in zip(images, results):
        if isinstance(matches, list):
            print_matches(name, matches, as_json, thumbnails)
            if not matches and not as_json:
                screen.say(f"{name} is the only image of {folder}")
            continue
        why = re.sub(r"^\d+ bytes", "standard input", str(matches)) if name == STDIN else str(matches)
        why += f"; {ANY_SIZE}" if screen.is_small(why) else ""
        if as_json:
            print(json.dumps({"query": name, "error": why}))
        else:
            screen.error(why)
    rows = [[(name, "query"), *((m.image, figure(m)) for m in matches)] for name, matches in good]
    show_page(page, f"{folder.resolve().name}, by {by}", rows)
    return bool(good)


def show_page(page: Path | None, title: str, rows: list[list[tuple[str, str]]]) -> None:
    """Write rows of images as a page, where one is asked for and there are any."""
    if page is not None and rows:
        from patchbag.search.page import write_page

        screen.say(f"page: {write_page(page, title, rows)}")


def open_index(folder: Path, by: str, jobs: int, tell: bool = False, compress: bool | None = None) -> Any:
    """The index of a folder, up to date, with a progress bar where that takes a while; says what cannot be read."""
    from patchbag.search import SearchIndex

    found = SearchIndex(folder, by, n_jobs=jobs, compress=compress)
    with screen.reporting("describing images") as progress:
        found.update(progress)
    for remark in found.remarks:
        screen.say(remark, "yellow")
    if tell or found.changes:
        screen.list_failures(list(found.failures.items()), len(found.failures) + len(found), ANY_SIZE)
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

    from patchbag.cli.pictures import picture

    table = Table("", what, "image", title=screen.literal(title), title_justify="left", box=None, pad_edge=False)
    table.columns[2].overflow = "fold"
    for path, figure in rows:
        shown = Text.from_ansi(picture(path, "blocks", THUMBNAIL)) if thumbnails else ""
        table.add_row(shown, figure, screen.literal(path))
    screen.print_table(table)


KINDS = {"identical": "the same file", "whole": "the same picture", "part": "a part or larger view"}


class Copy(NamedTuple):
    """An image in a group of copies: path, size, and how it is related to another one (None for the largest)."""

    image: str
    width: int
    height: int
    kind: str | None = None

    def caption(self) -> str:
        return f"{f'{KINDS[self.kind]}, ' if self.kind else ''}{self.width}×{self.height}"


def describe_group(paths: list[str], group: list[int], pairs: list[Any]) -> list[Copy]:
    """The images of a group, largest picture first, and how each of the others is related to one of the group."""
    from patchbag.images.loading import load_image

    sizes = {row: load_image(paths[row], max_side=64).original_size for row in group}  # decoded for the index just now
    order = sorted(group, key=lambda row: (-sizes[row][0] * sizes[row][1], row))
    kinds: dict[int, str] = {}
    for pair in pairs:
        if pair.first in sizes:
            for row in (pair.first, pair.second):
                kinds.setdefault(row, pair.kind)
    return [Copy(paths[row], *sizes[row], kind=kinds[row] if row != order[0] else None) for row in order]
