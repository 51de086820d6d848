# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from patchbag.features import cache as module
from patchbag.features.cache import FeatureCache, canonical, content_digest, default_folder, open_cache, parse_bytes

SIGNATURE = {"feature": "F", "parameters": {"step": 4, "sizes": (4, 6)}}


def entry(seed=0, rows=50, dtype=np.uint8):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, 128)).astype(dtype), rng.random((rows, 2)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_what_is_put_is_got_back_bit_for_bit(tmp_path, dtype):
    store = FeatureCache(tmp_path)
    key = store.key(b"content", SIGNATURE)
    assert store.get(key) is None
    values, positions = entry(dtype=dtype)
    assert store.put(key, values, positions)
    got_values, got_positions = FeatureCache(tmp_path).get(key)
    assert (got_values.dtype, got_positions.dtype) == (dtype, np.float32)
    np.testing.assert_array_equal(got_values, values)
    np.testing.assert_array_equal(got_positions, positions)


def test_an_entry_costs_little_more_than_its_arrays(tmp_path):
    store = FeatureCache(tmp_path)
    values, positions = entry(rows=4000)
    store.put("ab" * 20, values, positions)
    assert store.info().bytes < values.nbytes + positions.nbytes + 300


def test_the_key_depends_on_content_and_every_parameter_but_not_on_their_order(tmp_path):
    store = FeatureCache(tmp_path)
    key = store.key(b"content", SIGNATURE)
    assert key == store.key(b"content", {"parameters": {"sizes": [4, 6], "step": np.int64(4)}, "feature": "F"})
    others = [
        store.key(b"Content", SIGNATURE),
        store.key(b"content", {**SIGNATURE, "feature": "G"}),
        store.key(b"content", {**SIGNATURE, "parameters": {"step": 5, "sizes": (4, 6)}}),
    ]
    assert len({key, *others}) == 4


def test_signatures_are_plain_values():
    assert canonical({"dtype": np.float32}) == canonical({"dtype": "float32"})
    with pytest.raises(TypeError, match="plain value"):
        canonical({"function": lambda: 0})


def test_content_is_bytes_of_files_and_values_of_arrays(tmp_path):
    (tmp_path / "a").write_bytes(b"picture")
    (tmp_path / "b").write_bytes(b"picture")
    assert content_digest(tmp_path / "a") == content_digest(str(tmp_path / "b")) == content_digest(b"picture")
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert content_digest(array) == content_digest(np.asfortranarray(array))
    digests = {content_digest(a) for a in (array, array.T, array.reshape(4, 3), array.astype(np.uint16), array + 1)}
    assert len(digests) == 5


def damage(data, how):
    if how == "cut off":
        return data[: len(data) // 2]
    if how == "empty":
        return b""
    if how == "zeros":
        return bytes(len(data))
    if how == "text":
        return b"hello"
    if how == "appended":
        return data + b"x"
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("how", ["cut off", "empty", "zeros", "text", "appended", "one bit"])
def test_a_damaged_entry_is_a_miss_and_is_replaced(tmp_path, how):
    store = FeatureCache(tmp_path)
    key = store.key(b"content", SIGNATURE)
    store.put(key, *entry())
    (path,) = tmp_path.rglob("*.features")
    path.write_bytes(damage(path.read_bytes(), how))
    assert store.get(key) is None
    assert not path.exists()
    store.put(key, *entry())
    np.testing.assert_array_equal(store.get(key)[0], entry()[0])


def test_an_entry_of_a_later_version_is_a_miss(tmp_path, monkeypatch):
    store = FeatureCache(tmp_path)
    monkeypatch.setattr(module, "FORMAT_VERSION", 2)
    store.put("ab" * 20, *entry())
    monkeypatch.undo()
    assert store.get("ab" * 20) is None


def test_the_least_recently_used_entries_go_first(tmp_path):
    values, positions = entry()
    store = FeatureCache(tmp_path, max_bytes=10 * (values.nbytes + positions.nbytes + 200))
    keys = [store.key(bytes([i]), SIGNATURE) for i in range(30)]
    for age, key in enumerate(keys[:9]):
        store.put(key, values, positions)
        os.utime(store._path(key), (1000 + age, 1000 + age))
    assert store.get(keys[0]) is not None  # renews it
    for key in keys[9:14]:
        store.put(key, values, positions)
    store._trim()
    held = [key for key in keys if store._path(key).exists()]
    assert keys[0] in held and keys[13] in held
    assert keys[1] not in held and keys[2] not in held
    assert store.info().bytes <= store.max_bytes


def test_the_bound_holds_with_few_walks_over_the_folder(tmp_path, monkeypatch):
    values, positions = entry(rows=10)
    store = FeatureCache(tmp_path, max_bytes=200_000)  # about 125 entries
    walks = []
    walk = FeatureCache._trim
    monkeypatch.setattr(FeatureCache, "_trim", lambda self: (walks.append(1), walk(self)))
    for i in range(600):
        store.put(store.key(i.to_bytes(2, "big"), SIGNATURE), values, positions)
        if i % 20 == 0:
            assert store.info().bytes <= 200_000 * (1 + 1 / 64) + 2000
    assert store.info().entries > 90
    assert len(walks) < 600 / 3


def test_a_bound_of_zero_stores_nothing(tmp_path):
    store = FeatureCache(tmp_path, max_bytes=0)
    assert not store.put("ab" * 20, *entry())
    assert store.info().entries == 0


def test_writers_of_the_same_entry_do_not_disturb_readers(tmp_path):
    values, positions = entry(rows=400)
    keys = [FeatureCache(tmp_path).key(bytes([i]), SIGNATURE) for i in range(4)]

    def work(_):
        store = FeatureCache(tmp_path)
        wrong = 0
        for i in range(60):
            store.put(keys[i % 4], values, positions)
            got = store.get(keys[(i + 1) % 4])
            wrong += got is not None and not np.array_equal(got[0], values)
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 0
    assert FeatureCache(tmp_path).info().entries == 4
    assert not list(tmp_path.rglob("*.part"))


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = FeatureCache(tmp_path / "file")
    assert not store.put("ab" * 20, *entry())
    assert store.get("ab" * 20) is None
    assert store.info().entries == 0


def test_clearing_removes_entries_and_nothing_else(tmp_path):
    store = FeatureCache(tmp_path)
    for i in range(5):
        store.put(store.key(bytes([i]), SIGNATURE), *entry(i))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "ab").mkdir(exist_ok=True)
    (tmp_path / "ab" / "mine.npy").write_text("mine")
    assert module.info(tmp_path).entries == 5
    assert module.clear(tmp_path) == 5
    assert module.info(tmp_path)[1:3] == (0, 0)
    assert (tmp_path / "notes.txt").exists() and (tmp_path / "ab" / "mine.npy").exists()


def test_the_folder_and_the_bound_come_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PATCHBAG_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", "500M")
    assert FeatureCache().info() == (tmp_path / "here", 0, 0, 500_000_000)
    monkeypatch.delenv("PATCHBAG_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "patchbag"
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", "lots")
    with pytest.raises(ValueError, match="lots"):
        FeatureCache()


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("12", 12), ("4G", 4 * 10**9), ("1.5 kB", 1500), ("2TB", 2 * 10**12)]
)
def test_sizes_are_read_with_their_units(text, number):
    assert parse_bytes(text) == number


def test_the_cache_parameter_means_none_the_default_folder_or_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHBAG_CACHE", str(tmp_path / "default"))
    assert open_cache(None) is None and open_cache(False) is None
    assert open_cache(True).folder == tmp_path / "default"
    assert open_cache(str(tmp_path)).folder == Path(tmp_path)
    assert open_cache(tmp_path) is open_cache(str(tmp_path))
    mine = FeatureCache(tmp_path)
    assert open_cache(mine) is mine
