# SPDX-License-Identifier: BSD-3-Clause
"""A folder of small pictures, and a store of its own for every test."""

from __future__ import annotations

import pytest

from collection.pictures import Rows, save


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHBAG_CACHE", str(tmp_path / "store"))
    monkeypatch.delenv("PATCHBAG_CACHE_SIZE", raising=False)
    Rows.calls = 0
    return tmp_path / "store"


@pytest.fixture
def photos(tmp_path):
    """Four pictures of cats and three of dogs, of 20 to 26 rows."""
    for i in range(7):
        save(tmp_path / "photos" / ("cat" if i < 4 else "dog") / f"{i}.png", height=20 + i)
    return tmp_path / "photos"
