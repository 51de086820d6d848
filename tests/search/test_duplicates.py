# SPDX-License-Identifier: BSD-3-Clause
"""Copies are found, other pictures of the same thing are not."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image, ImageEnhance
from skimage import data

from cli.commands import run
from patchbag import SearchIndex
from patchbag.search.duplicates import candidates, compare_pictures, find_duplicates
from patchbag.search.geometry import align, correlation, lie_as_they_are, look

pytestmark = pytest.mark.usefixtures("own_store")


@pytest.fixture(scope="module")
def astronaut() -> Image.Image:
    return Image.fromarray(data.astronaut())


@pytest.fixture
def folder(tmp_path, astronaut):
    """A photograph, four copies of it, and another photograph."""
    place = tmp_path / "photos"
    place.mkdir()
    astronaut.save(place / "a.png")
    shutil.copy(place / "a.png", place / "b.png")
    astronaut.resize((200, 200)).save(place / "c.jpg", quality=30)
    ImageEnhance.Brightness(ImageEnhance.Color(astronaut).enhance(0.2)).enhance(1.2).save(place / "d.png")
    astronaut.crop((80, 20, 440, 380)).save(place / "e.png")
    Image.fromarray(data.chelsea()).save(place / "other.png")
    return place


def test_resized_compressed_recoloured_cropped_and_identical_copies_are_one_group(folder):
    index = SearchIndex(folder, n_jobs=1).update()
    groups, pairs = find_duplicates(index)
    assert [[index.names[row] for row in group] for group in groups] == [["a.png", "b.png", "c.jpg", "d.png", "e.png"]]
    kinds = {(index.names[p.first], index.names[p.second]): p.kind for p in pairs}
    assert kinds["a.png", "b.png"] == "identical"
    assert {kind for names, kind in kinds.items() if "e.png" in names} == {"part"}


def test_the_command_prints_groups_the_largest_picture_first(folder):
    result = run("duplicates", folder, "--json", "-j", 1)
    (group,) = [json.loads(line) for line in result.stdout.splitlines()]
    first, *_, last = group["images"]
    assert len(group["images"]) == 5 and first.pop("image").endswith("a.png") and last.pop("image").endswith("c.jpg")
    assert first == {"width": 512, "height": 512, "kind": None}
    assert last == {"width": 200, "height": 200, "kind": "whole"}
    assert "4 copies of 1 picture among 6 images" in result.stderr
    for name in "bcde":
        next(folder.glob(f"{name}.*")).unlink()
    result = run("duplicates", folder, "-j", 1)
    assert result.stdout == "" and "no copies among 2 images" in result.stderr


def test_alignment_finds_the_place_and_the_scale_of_a_part(astronaut):
    whole, part = look(np.asarray(astronaut)), look(np.asarray(astronaut.crop((80, 20, 440, 380))))
    found = align(whole, part)
    assert found.scale == pytest.approx(360 / 512, rel=0.02)
    assert found.agreement > 0.95 and found.overlap > 0.95
    assert lie_as_they_are(whole, part) < 0.8
    other = align(whole, look(data.chelsea()))
    assert other.agreement < 0.7 or other.overlap < 0.5


def test_the_edge_of_a_part_in_front_of_an_empty_ground_does_not_count_against_it(astronaut):
    canvas = Image.new("RGB", (900, 900), "white")
    canvas.paste(astronaut, (194, 194))
    found = align(look(np.asarray(canvas)), look(np.asarray(canvas.crop((8, 8, 892, 892)))))
    assert found.agreement > 0.9 and found.overlap > 0.98


def test_pictures_of_a_series_in_which_something_moved_are_no_copies(astronaut):
    moved = np.roll(np.asarray(astronaut), 12, axis=1)
    moved[330:480, 150:300] = data.chelsea()[50:200, 100:250]
    assert compare_pictures(look(np.asarray(astronaut)), look(moved)) is None


def test_pictures_that_show_nothing_agree_with_nothing():
    flat = look(np.full((60, 80, 3), 120, np.uint8))
    assert lie_as_they_are(flat, flat) == 0 and align(flat, flat).agreement == 0
    assert correlation(np.ones(5), np.arange(5.0)) == 0


def test_correlation_does_not_see_brightness_and_contrast(rng):
    a = rng.random((9, 9))
    assert correlation(a, 0.3 * a + 5) == pytest.approx(1)
    assert correlation(a, -a) == pytest.approx(-1)
    assert correlation(a, rng.random((9, 9))) == pytest.approx(np.corrcoef(a.ravel(), a.ravel())[0, 1], abs=1.5)


def test_candidates_are_near_pairs_each_once_nearest_first():
    angles = np.array([0.0, 0.1, 0.15, 2.5])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert candidates(vectors) == [(1, 2), (0, 1), (0, 2)]
    assert candidates(vectors[:1]) == []
