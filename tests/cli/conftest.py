"""Commands are tried in a folder of their own, with a store of their own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_folder(own_store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
