"""The same seed, whatever the number of workers and the order of Python's sets: the same model file, byte for byte."""

from __future__ import annotations

from pathlib import Path

RECIPES = ["fisher", "gp-pmk", "mlnn-fisher", "unn-gist", "words-addkpca"]


def test_workers_and_hash_seeds_do_not_change_a_byte_of_the_model(monkeypatch):
    """``python fuzz/determinism.py`` does the same for every recipe."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "fuzz"))
    import determinism

    for recipe, found in determinism.compare(RECIPES).items():
        assert len(set(found)) == 1 and len(found[0]) == 24, (recipe, found)
