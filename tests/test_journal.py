# SPDX-License-Identifier: BSD-3-Clause
"""Experiments that were stopped go on where they were, whatever their kind."""

from __future__ import annotations

import shutil

import pytest

from patchbag.experiments import Journal, neighbors, run_experiment
from patchbag.experiments.files import STUDIES

SMALL = {"statistics.mixture.n_components": 3, "statistics.projection.n_components": 8}
GP = {"kernel.n_words": 20, "features.step": 16}
LONG = {
    "clusters": {"train_per_class": 9, "run": [{"name": "words", "recipe": "words"}]},
    "ranks": {"train_per_class": 5, "at": [1, 2], "run": [{"name": "words", "recipe": "words"}]},
    "calibration": {"at": [3], "run": [{"name": "words", "recipe": "words"}]},
    "distrust": {"at": [3], "half": True, "run": [{"name": "words", "recipe": "words"}]},
    "active": {
        "recipe": "gp-spm", "settings": GP, "criteria": ["uncertainty"], "n_test": 3, "n_labels": 8, "at": [8],
    },
    "pool": {"recipe": "deep-pool", "settings": {}, "criteria": ["margin"], "n_labels": 6, "at": [6]},
    "neighbors": {"features": "colors", "run": [{"name": "leaves", "figure": "leaves"}]},
    "retrieval": {"at": [5], "queries": 12, "run": [{"name": "it", "by": "deep"}]},
    "robustness": {"queries": 3, "versions": ["turn-10"], "run": [{"name": "it", "by": "deep"}]},
}  # fmt: skip
ELSEWHERE = {"evaluate", "kernels", "voc", "uci"}  # have such a test of their own, or share the loop of one that has
QUICK = {"toy", "discount", "eigenfunctions", "mixture-cost", "plane", "risk", "ripley"}


class Complete(Journal):
    """A journal that has everything: a figure that is found anew is a failure."""

    def __setitem__(self, key, value):
        pytest.fail("a figure was computed again")


@pytest.mark.parametrize("kind", LONG)
def test_a_second_run_of_a_long_experiment_computes_nothing_again(
    kind, picture_folder, tmp_path, own_store, monkeypatch
):
    monkeypatch.setitem(neighbors.SIZES, "colors", (400, 30))
    spec = {"name": "x", "title": "t", "kind": kind, "data": picture_folder.name, "splits": 2, "settings": SMALL}
    spec |= LONG[kind]
    place = tmp_path / "x.partial.jsonl"
    rows = run_experiment(spec, picture_folder.parent, splits=2, journal=Journal(place))["runs"]
    kept = Complete(place)
    assert len(kept) and run_experiment(spec, picture_folder.parent, splits=2, journal=kept)["runs"] == rows
    shutil.copy(picture_folder / "bars" / "00.png", picture_folder / "bars" / "zz.png")
    with pytest.raises(pytest.fail.Exception, match="computed again"):  # another collection
        run_experiment(spec, picture_folder.parent, splits=2, journal=kept)


def test_all_kinds_of_experiments_but_quick_ones_are_kept_in_a_journal():
    assert set(STUDIES) == LONG.keys() | ELSEWHERE | QUICK
