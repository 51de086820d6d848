# SPDX-License-Identifier: BSD-3-Clause
"""The command cluster: groups on the screen, on a page, and as folders of links."""

from __future__ import annotations

import json

from cli.commands import run


def test_alike_pictures_come_together_and_originals_stay(picture_folder, tmp_path):
    before = sorted(picture_folder.rglob("*.png"))
    sorted_into, page = tmp_path / "sorted", tmp_path / "groups.html"
    result = run("cluster", picture_folder, "-n", 3, "--json", "-o", sorted_into, "--page", page)
    assert result.exit_code == 0, result.output
    groups = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(path for group in groups for path in group["images"]) == [str(p) for p in before]
    assert sorted(picture_folder.rglob("*.png")) == before
    folders = sorted(sorted_into.iterdir())
    assert [len(list(f.iterdir())) for f in folders] == [len(g["images"]) for g in groups]
    first = sorted(folders[0].iterdir())[0]
    assert first.is_symlink() and str(first.resolve()) == groups[0]["typical"]
    assert page.read_text(encoding="utf-8").count("<section>") == len(groups)
    majority = sum(
        max(sum(f"/{c}/" in p for p in g["images"]) for c in ("bars", "diagonals", "stripes")) for g in groups
    )
    assert majority >= 0.8 * len(before)

    again = run("cluster", picture_folder, "-o", sorted_into)
    assert again.exit_code != 0 and "not empty" in str(again.exception)
    inside = run("cluster", picture_folder, "-o", picture_folder / "groups")
    assert inside.exit_code != 0 and "inside" in str(inside.exception)


def test_groups_are_lines_for_the_next_program(picture_folder):
    result = run("cluster", picture_folder, "--by", "color", "-n", 2)
    assert result.exit_code == 0, result.output
    assert {line.split("\t")[0] for line in result.stdout.splitlines()} <= {"1", "2"}
