"""Files that are replaced in one step, and arrays in folders that are."""

from __future__ import annotations

import errno
import json

import numpy as np
import pytest

from patchbag.storage.array_files import open_arrays, save_arrays
from patchbag.storage.replacing import replacing


def test_an_error_on_the_way_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"new")
        raise RuntimeError
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["labels.csv"]


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path):
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*report\.html'"),
        replacing(tmp_path / "report.html"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_link_that_was_planted_at_a_name_of_before_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("safe")
    (tmp_path / ".labels.csv.partial").symlink_to(victim)
    with replacing(tmp_path / "labels.csv", text=True) as file:
        file.write("new")
    assert victim.read_text() == "safe" and (tmp_path / "labels.csv").read_text() == "new"


def test_arrays_count_when_their_manifest_does_and_old_ones_go(tmp_path):
    for value in (1, 2):
        save_arrays(tmp_path, "m.json", {"a": np.full(3, value)}, {"n": value})
    manifest = json.loads((tmp_path / "m.json").read_text())
    assert open_arrays(tmp_path, manifest["files"], "r")["a"].tolist() == [2, 2, 2]
    assert len(list(tmp_path.glob("*.npy"))) == 1
