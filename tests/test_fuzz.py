"""The short, deterministic part of the campaigns in ``fuzz/``; ``make fuzz`` runs them for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "fuzz"


@pytest.fixture(autouse=True)
def programs(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("PATCHBAG_CACHE", str(tmp_path))


def run(name: str, cases: int) -> None:
    import campaign

    _, counts, findings = campaign.run(str(FOLDER / f"{name}.py"), 120, 0, None, [], most=cases)
    assert not findings and counts.total() == cases


def test_mutated_images_are_read_or_refused():
    run("images", 400)


def test_writers_that_are_killed_lose_nothing():
    run("kills", 12)


def test_a_process_that_dies_is_counted_and_the_next_case_is_run(tmp_path):
    import campaign

    script = tmp_path / "dies.py"
    script.write_text(
        f"import os, sys\nsys.path.insert(0, {str(FOLDER)!r})\nimport campaign\n"
        "def case(seed):\n"
        "    if seed == 2: os.abort()\n"
        "    if seed == 3: raise KeyError('x')\n"
        "    return 'fine'\n"
        "campaign.main(__file__, lambda: case)\n"
    )
    journal = tmp_path / "journal"
    seed, counts, findings = campaign.run(str(script), 60, 0, journal, [], most=5)
    assert seed == 5 and counts == {"fine": 3, "crash": 1, "finding": 1}
    assert [number for number, _ in findings] == [2, 3] and campaign.last_seed(journal) == 5


def test_extremes_that_once_gave_nan_or_raw_errors_are_answered_or_refused():
    import numerics

    case = numerics.prepare()
    # GP and subnormal kernels, adaptation and integers, means of NaN, pyramid match and float16, statistics at 1e30
    assert {case(seed) for seed in (451, 903, 974, 1380, 1729)} == {"answer", "ValueError"}
