# SPDX-License-Identifier: BSD-3-Clause
"""The command that sorts images nobody has labelled: cluster."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from patchbag.cli import screen
from patchbag.cli.files import check_output_folder, check_outputs
from patchbag.cli.finding import open_index, print_table, show_page
from patchbag.cli.options import ForceOption, JobsOption, PixelsOption, SeedOption, app
from patchbag.cli.screen import count
from patchbag.cli.search import ByOption, FolderToSearch, PageOption, ThumbnailsOption

SHOWN = 12  # images of a cluster on the page


@app.command()
def cluster(
    folder: FolderToSearch,
    number: Annotated[
        int | None, typer.Option("--number", "-n", min=1, help="How many groups; default: as many as there seem to be.")
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
