# SPDX-License-Identifier: BSD-3-Clause
"""A folder of small pictures; every test has a store of its own, and counts from 0."""

from __future__ import annotations

import pytest

from collection.pictures import Rows, save


@pytest.fixture(autouse=True)
def fresh(own_store):
    Rows.calls = 0


@pytest.fixture
def photos(tmp_path):
    """Four pictures of cats and three of dogs, of 20 to 26 rows."""
    for i in range(7):
        save(tmp_path / "photos" / ("cat" if i < 4 else "dog") / f"{i}.png", height=20 + i)
    return tmp_path / "photos"
