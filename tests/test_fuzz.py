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

    counts, findings = campaign.run(str(FOLDER / f"{name}.py"), 120, 0, None, most=cases, jobs=2)
    assert counts.pop("MB") < 1000
    assert not findings and counts.total() == cases


def test_mutated_images_are_read_or_refused():
    run("images", 400)


def test_writers_that_are_killed_lose_nothing():
    run("kills", 12)


def test_labels_that_the_page_acknowledged_survive_kills():
    run("page", 5)


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
    counts, findings = campaign.run(str(script), 60, 0, journal, most=5)
    del counts["MB"]
    assert counts == {"fine": 3, "crash": 1, "finding": 1}
    assert [number for number, _ in findings] == [2, 3]
    share = campaign.SHARE
    assert next(campaign.remaining(0, campaign.read(journal))) == (5, share)
    done = [{"first": 0, "next": 7}, {"first": 2 * share, "next": 3 * share}, {"first": 7, "next": share}]
    assert [*campaign.remaining(0, done, 4 * share)] == [(share, 2 * share), (3 * share, 4 * share)]


def test_extremes_that_once_gave_nan_or_raw_errors_are_answered_or_refused():
    import numerics

    case = numerics.prepare()
    # GP and subnormal kernels, adaptation and integers, means of NaN, pyramid match and float16, statistics at 1e30
    assert {case(seed) for seed in (451, 903, 974, 1380, 1729)} == {"answer", "ValueError"}
