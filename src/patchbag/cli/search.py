# SPDX-License-Identifier: BSD-3-Clause
"""The commands for images without labels: index, search, duplicates, cluster; see :mod:`patchbag.cli.finding`."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from patchbag.cli import screen
from patchbag.cli.files import check_output_folder, check_outputs
from patchbag.cli.finding import describe_group, find, open_index, print_table, show_page
from patchbag.cli.options import ForceOption, JobsOption, PixelsOption, SeedOption, app
from patchbag.cli.screen import count
from patchbag.search.representations import REPRESENTATIONS

SHOWN = 12  # images of a cluster on the page

ByOption = Annotated[
    str, typer.Option("--by", "-b", help=f"What images are compared by: {', '.join(REPRESENTATIONS)}.")
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


@app.command()
def search(
    folder: FolderToSearch,
    images: Annotated[list[str], typer.Argument(help="Images to search by: files, or - for standard input.")],
    top: Annotated[int, typer.Option("--top", "-k", metavar="N", min=1, help="How many images to find for each.")] = 10,
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
    found = find(
        folder,
        images,
        top=top,
        by=by,
        crop=crop,
        diffuse=diffuse,
        expand=expand,
        verify=verify,
        as_json=as_json,
        page=page,
        thumbnails=thumbnails,
        jobs=jobs,
        force=force,
    )
    if not found:
        raise typer.Exit(1)


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
    captions = [[(copy.image, copy.caption()) for copy in copies] for copies in shown]
    for copies, rows in zip(shown, captions):
        if as_json:
            print(json.dumps({"images": [copy._asdict() for copy in copies]}))
        elif screen.out.is_terminal:
            print_table("", rows, "is", thumbnails)
        else:
            print("\t".join(copy.image for copy in copies))
    show_page(page, f"{folder.resolve().name}, copies", captions)
    extra = sum(len(group) - 1 for group in groups)
    counted = f"{extra:,} {'copy' if extra == 1 else 'copies'} of {count(len(groups), 'picture')}"
    screen.say(f"{counted if groups else 'no copies'} among {count(len(found), 'image')}")


@app.command()
def cluster(
    folder: FolderToSearch,
    number: Annotated[
        int | None,
        typer.Option(
            "--number", "-n", metavar="N", min=1, help="How many groups; default: as many as there seem to be."
        ),
    ] = None,
    by: ByOption = "deep",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="New folder that gets a sub-folder of links for each group."),
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copies in place of links; the originals are not moved.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line and group.")] = False,
    page: PageOption = None,
    thumbnails: ThumbnailsOption = True,
    seed: SeedOption = 0,
    jobs: JobsOption = -1,
    max_pixels: PixelsOption = None,
    force: ForceOption = False,
) -> None:
    """Sort the images of a folder into groups that are alike, without labels; each is led by its most typical image."""
    check_outputs(page, force=force)
    if output is not None:
        check_new_folder(output, folder)
    found = open_index(folder, by, jobs)
    if not found.vectors.shape[1]:
        raise ValueError(f"images compared by {by} have no vectors to be sorted by; take another --by")
    if len(found) < 2:
        raise ValueError(f"{folder} has {count(len(found), 'image')} that can be read; groups need two or more")
    from patchbag.search.clusters import ImageClusters

    power = 0.5 if found.representation.metric == "kl" else 1.0
    model = ImageClusters("auto" if number is None else number, entry_power=power, random_state=seed)
    model.fit(found.vectors)
    groups = []
    for of in range(len(model.typical_)):
        members = (model.labels_ == of).nonzero()[0]
        groups.append([found.paths[i] for i in sorted(members, key=lambda i: (-model.central_[i], i))])
    for name, group in enumerate(groups, 1):
        if as_json:
            print(json.dumps({"group": name, "typical": group[0], "images": group}))
        elif not screen.out.is_terminal:
            print("\n".join(f"{name}\t{path}" for path in group))
    if screen.out.is_terminal and not as_json:
        rows = [(group[0], count(len(group), "image")) for group in groups]
        print_table(f"{folder}, by {by}", rows, "group of", thumbnails)
    shown = [[(g[0], count(len(g), "image")), *((path, "") for path in g[1:SHOWN])] for g in groups]
    show_page(page, f"{folder.resolve().name}, groups by {by}", shown)
    if output is not None:
        make_folders(output, groups, copy)
        screen.say(f"{count(len(groups), 'folder')} in {output}; the first image of each is its most typical one")


def check_new_folder(output: Path, folder: Path) -> None:
    """Raise unless a folder of that name can be made, or is there and empty, outside of the images."""
    if output.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{output} is inside of {folder}: the groups would be images of it; name another folder")
    if output.is_dir() and any(output.iterdir()):
        raise ValueError(f"{output} is not empty; name a new folder")
    check_output_folder(output)


def make_folders(output: Path, groups: list[list[str]], copy: bool) -> None:
    """A numbered folder per group; images in it are links (or copies), numbered from the most typical one on."""
    digits = len(str(len(groups)))
    for name, group in enumerate(groups, 1):
        place = output / f"{name:0{digits}}"
        place.mkdir(parents=True)
        width = len(str(len(group)))
        for i, path in enumerate(group, 1):
            target = place / f"{i:0{width}}_{Path(path).name}"
            if copy:
                shutil.copy2(path, target)
            else:
                os.symlink(Path(path).resolve(), target)
