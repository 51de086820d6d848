# SPDX-License-Identifier: BSD-3-Clause
"""Folders whose file names say which images show the same thing."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from patchbag.collection import CollectionError
from patchbag.datasets.groups import open_groups
from patchbag.metrics import mean_average_precision, top_four_score


def folder_of(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(folder / name)
    return folder


def test_four_images_in_a_row_are_a_group_and_all_are_queries(tmp_path):
    folder = folder_of(tmp_path, [f"full/ukbench{i:05d}.jpg" for i in reversed(range(8))])
    images = open_groups(folder, "ukbench")
    assert [path.rpartition("/")[2] for path in images.paths[:2]] == ["ukbench00000.jpg", "ukbench00001.jpg"]
    assert images.groups.tolist() == [0] * 4 + [1] * 4 and images.queries.tolist() == list(range(8))
    ranked = np.array([[images.groups[j] == images.groups[i] for j in range(8) if j != i] for i in images.queries])
    assert top_four_score(ranked[:4]) == 4 and top_four_score(ranked[4:]) == 1


def test_the_first_image_of_a_group_asks_and_a_group_of_one_does_not(tmp_path):
    folder = folder_of(tmp_path, ["100000.jpg", "100001.jpg", "100002.jpg", "100100.jpg", "149900.jpg", "149901.jpg"])
    images = open_groups(folder, "holidays")
    assert images.groups.tolist() == [1000] * 3 + [1001] + [1499] * 2 and images.queries.tolist() == [0, 4]
    found = np.array([[True, True, False, False, False], [False, True, False, False, False]])
    assert mean_average_precision(found, "holidays") == pytest.approx((1 + 0.25) / 2)


def test_other_names_and_other_layouts_are_clear_errors(tmp_path):
    folder_of(tmp_path, ["a.jpg"])
    with pytest.raises(CollectionError, match=r"such as ukbench00000.jpg"):
        open_groups(tmp_path, "ukbench")
    with pytest.raises(ValueError, match="layout must be one of ukbench, holidays"):
        open_groups(tmp_path, "oxford")
