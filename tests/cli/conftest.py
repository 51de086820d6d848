"""Commands are tried in a folder of their own, with a store of their own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHBAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
