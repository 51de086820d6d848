# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from collection.pictures import Rows, assert_same, save
from patchbag.collection import describe as describing
from patchbag.collection import open_collection, store
from patchbag.collection.store import Store, parse_bytes
from patchbag.features.channels import FeatureChannels
from patchbag.features.color import ColorStatistics
from patchbag.features.dense_sift import DenseSIFT
from patchbag.images.loading import ImageError
from patchbag.runtime import runtime_context

TINY = DenseSIFT(8, (4,), dtype="uint8")
DESCRIBE_ALL = """
import os, signal, sys, time
from collection.pictures import Rows
from patchbag.collection import describe, open_collection
describe.BATCH_BYTES = 800
left, fsync = int(sys.argv[2]), os.fsync
def flush(handle):
    global left
    left -= 1
    if left == 0: os.kill(os.getpid(), signal.SIGKILL)
    fsync(handle)
os.fsync = flush
print(len(open_collection(sys.argv[1]).describe(Rows()).bags))
"""


def run(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", DESCRIBE_ALL, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


@pytest.fixture(autouse=True)
def seen_by_subprocesses(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


# --- what is found again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("features", [TINY, ColorStatistics(8), DenseSIFT(8, (4, 6), dtype="float16")])
def test_stored_bags_are_those_of_the_feature_bit_for_bit(picture_folder, features, jobs, monkeypatch):
    monkeypatch.setattr(describing, "BATCH_BYTES", 50_000)
    collection = open_collection(picture_folder)
    plain = features.transform(collection.paths)
    features.set_params(n_jobs=jobs)
    for _ in range(2):
        bags, kept, failures = collection.describe(features)
        assert_same(bags, plain)
        assert isinstance(bags.values, np.memmap) and kept.tolist() == list(range(36)) and failures == []


def test_what_is_stored_is_not_computed_again(photos):
    collection = open_collection(photos)
    cold = collection.describe(Rows()).bags
    assert Rows.calls == 7
    assert_same(open_collection(photos).describe(Rows()).bags, cold)
    assert_same(collection[[5, 1]].describe(Rows()).bags, cold[[5, 1]])
    assert Rows.calls == 7 and Store().info().entries == 7


def test_a_file_that_has_not_changed_is_not_read_again(photos, monkeypatch):
    open_collection(photos).describe(Rows())
    read = []
    monkeypatch.setattr(store, "content_digest", lambda path: read.append(path))
    monkeypatch.setattr("patchbag.images.loading._decode", lambda *a: pytest.fail("read again"))
    assert len(open_collection(photos).describe(Rows()).bags) == 7 and read == []


def test_a_file_changed_in_the_last_seconds_is_read_again_for_clocks_are_coarse(photos):
    path = save(photos / "cat" / "0.png", level=50, age=0)
    status = path.stat()
    open_collection(photos).describe(Rows())
    save(path, level=60)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert np.all(open_collection(photos).describe(Rows()).bags[0] == 60)


def test_moved_copied_deleted_and_new_files_cost_only_what_is_new(photos):
    cold = open_collection(photos).describe(Rows()).bags
    (photos / "cat" / "1.png").rename(photos / "dog" / "x.png")
    shutil.copy(photos / "cat" / "0.png", photos / "cat" / "again.png")
    (photos / "cat" / "2.png").unlink()
    save(photos / "cat" / "new.png", level=77)
    collection = open_collection(photos)
    bags = collection.describe(Rows()).bags
    assert Rows.calls == 8
    order = [collection.names.index(name) for name in ("cat/0.png", "dog/x.png", "cat/3.png", "dog/4.png")]
    assert_same(bags[order], cold[[0, 1, 3, 4]])
    assert np.array_equal(bags[collection.names.index("cat/again.png")], cold[0])
    assert np.all(bags[collection.names.index("cat/new.png")] == 77)


def test_an_edited_file_is_described_again_and_an_undone_edit_found(photos):
    before = (photos / "cat" / "0.png").read_bytes()
    cold = open_collection(photos).describe(Rows()).bags
    save(photos / "cat" / "0.png", level=66, height=20, age=50)
    assert np.all(open_collection(photos).describe(Rows()).bags[0] == 66) and Rows.calls == 8
    (photos / "cat" / "0.png").write_bytes(before)
    assert_same(open_collection(photos).describe(Rows()).bags, cold)
    assert Rows.calls == 8


def test_other_parameters_and_versions_are_other_features(photos, monkeypatch):
    collection = open_collection(photos)
    one = collection.describe(Rows()).bags
    assert np.array_equal(collection.describe(Rows(factor=2.0)).bags.values, 2 * one.values)
    collection.describe(Rows(max_side=16))
    monkeypatch.setattr(Rows, "version", 2)
    collection.describe(Rows())
    collection.describe(Rows(n_jobs=2))
    assert Rows.calls == 4 * 7
    assert Rows(factor=np.float64(2)).signature() == Rows(factor=2.0).signature() != Rows(factor=2.5).signature()


def test_the_fingerprint_tells_contents_and_features_apart_and_nothing_else(photos):
    collection = open_collection(photos)
    one = collection.describe(Rows()).bags.fingerprint
    assert one == collection.describe(Rows()).bags.fingerprint
    (photos / "cat").rename(photos / "feline")
    assert open_collection(photos)[[3, 4, 5, 6, 0, 1, 2]].describe(Rows()).bags.fingerprint == one
    assert (
        len({one, collection[4:].describe(Rows()).bags.fingerprint, collection.describe(Rows(2.0)).bags.fingerprint})
        == 3
    )


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(photos):
    (photos / "cat" / "1.png").write_text("not a picture")
    save(photos / "cat" / "3.png", level=13)
    shutil.copy(photos / "cat" / "3.png", photos / "dog" / "4.png")
    return photos


@pytest.mark.parametrize("bound", ["20G", "0"])
def test_images_that_fail_never_shift_labels_against_bags(broken, monkeypatch, bound):
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", bound)
    collection = open_collection(broken)
    (broken / "dog" / "6.png").unlink()
    for _ in range(2):
        bags, kept, failures = collection.describe(Rows())
        assert kept.tolist() == [0, 2, 5] and bags.sizes.tolist() == [20, 22, 25]
        assert collection.labels[kept].tolist() == ["cat", "cat", "dog"]
        assert [(f.index, f.name) for f in failures] == [(i, collection.paths[i]) for i in (1, 3, 4, 6)]
        assert "not an image" in failures[0].message and "no such file" in failures[3].message
        assert failures[1].message == failures[2].message == "brings bad luck"
        assert len(collection[kept].describe(Rows()).bags) == 3
    with pytest.raises(ImageError, match=r"image 1 of 7, .*cat/1\.png: is not an image"):
        collection.describe(Rows(), on_error="raise")
    with pytest.raises(ValueError, match="on_error"):
        collection.describe(Rows(), on_error="ignore")
    for wrong in (Rows, "sift"):
        with pytest.raises(TypeError, match="must be a feature extractor such as"):
            collection.describe(wrong)
    assert collection[[1, 6]].describe(Rows())[:2] != () and len(collection[[1, 6]].describe(Rows()).bags) == 0


def test_several_features_keep_the_images_that_all_can_describe(picture_folder):
    save(picture_folder / "bars" / "00.png", height=20)  # 8 pixels wide: too narrow for one of them
    collection = open_collection(picture_folder)
    features = FeatureChannels([("rows", Rows()), ("sift", TINY), ("color", "drop")])
    channels, kept, failures = collection.describe(features)
    assert channels.names == ("rows", "sift") and kept.tolist() == list(range(1, 36))
    assert [(f.index, "smaller than the smallest patch" in f.message) for f in failures] == [(0, True)]
    assert_same(channels["rows"], Rows().transform(collection.paths[1:]))
    assert_same(channels["sift"], TINY.transform(collection.paths[1:]))
    assert collection[kept].describe(features).bags["sift"].fingerprint == channels["sift"].fingerprint


def test_a_file_that_changes_while_it_is_described_is_not_stored_under_its_old_content(photos, monkeypatch):
    collection = open_collection(photos)
    describe = Rows.describe

    def meddle(self, image):
        save(photos / "cat" / "2.png", level=88, age=30)
        return describe(self, image)

    monkeypatch.setattr(Rows, "describe", meddle)
    failures = collection.describe(Rows()).failures
    assert [(f.index, f.message) for f in failures] == [(2, "was changed while it was read")]
    monkeypatch.undo()


def test_progress_counts_what_was_found_too(photos):
    seen = []
    collection = open_collection(photos)
    collection[:4].describe(Rows())
    collection.describe(Rows(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(5, 7), (6, 7), (7, 7)]


# --- kills, writers at once, damage ----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("moment", [1, 2, 6])
def test_whoever_is_killed_in_the_middle_of_writing_leaves_a_usable_store(photos, own_store, moment):
    killed = run(photos, moment)
    assert killed.communicate()[0] == "" and killed.returncode == -9
    assert Store().info().entries == 3 * ((moment - 1) // 2)  # both files are flushed, then three entries committed
    bags = open_collection(photos).describe(Rows()).bags
    assert_same(bags, Rows().transform(open_collection(photos).paths))
    assert Store().info().entries == 7
    assert (next(own_store.glob("shard-*")) / "values.bin").stat().st_size == bags.values.nbytes


def test_an_error_between_writing_and_committing_leaves_what_was_there(photos, monkeypatch):
    collection = open_collection(photos)
    collection[:3].describe(Rows())
    with monkeypatch.context() as patched:
        patched.setattr(Store, "_close", lambda *a: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.warns(UserWarning, match="features are not kept in .*No space left"):
            unstored = collection.describe(Rows()).bags
    assert Store().info().entries == 3 and unstored.fingerprint is None
    assert_same(collection.describe(Rows()).bags, unstored)
    assert Store().info().entries == 7


def test_two_processes_and_several_threads_write_at_once(photos):
    runs = [run(photos, 0) for _ in range(2)]
    with ThreadPoolExecutor(3) as threads:
        made = [threads.submit(open_collection(photos).describe, Rows()) for _ in range(3)]
        made = [future.result().bags for future in made]
    assert [run.communicate()[0].strip() for run in runs] == ["7", "7"]
    plain = Rows().transform(open_collection(photos).paths)
    for bags in (*made, open_collection(photos).describe(Rows()).bags):
        assert_same(bags, plain)
    info = Store().info()
    assert (info.entries, info.bytes) == (7, plain.values.nbytes + plain.positions.nbytes)


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
        return
    if how == "one bit":
        data[len(data) // 2] ^= 1
    path.write_bytes({"cut off": data[: len(data) // 2], "empty": b"", "zeros": bytes(len(data))}.get(how, bytes(data)))


@pytest.mark.parametrize("name", ["values.bin", "positions.bin"])
@pytest.mark.parametrize("how", ["cut off", "empty", "zeros", "one bit", "missing"])
def test_what_is_damaged_is_described_again_and_never_served(photos, own_store, name, how):
    collection = open_collection(photos)
    cold = collection.describe(Rows()).bags
    plain = Rows().transform(collection.paths)
    Rows.calls = 0
    del cold
    damage(next(own_store.glob("shard-*")) / name, how)
    for _ in range(2):
        assert_same(collection.describe(Rows()).bags, plain)
    assert 1 <= Rows.calls <= 7 and (Rows.calls < 7 or how not in ("cut off", "one bit"))


def test_damage_that_leaves_size_and_time_is_found_by_checking_a_few_images(photos, own_store):
    collection = open_collection(photos)
    collection.describe(Rows())
    path = next(own_store.glob("shard-*")) / "values.bin"
    status = path.stat()
    damage(path, "one bit")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert_same(collection.describe(Rows()).bags, Rows().transform(collection.paths))


def test_a_shard_that_was_removed_by_hand_is_made_anew(photos, own_store):
    collection = open_collection(photos)
    collection.describe(Rows())
    shutil.rmtree(next(own_store.glob("shard-*")))
    assert_same(collection.describe(Rows()).bags, Rows().transform(collection.paths))
    assert Store().info().entries == 7


def test_a_damaged_index_costs_one_run(photos, own_store):
    collection = open_collection(photos)
    plain = collection.describe(Rows()).bags
    (own_store / store.INDEX).write_bytes(b"nonsense" * 1000)
    with pytest.warns(UserWarning, match="not kept in .*not a database"):
        assert_same(collection.describe(Rows()).bags, plain)
    collection.describe(Rows())
    assert Store().info().entries == 7


def test_a_feature_that_changes_its_dimension_must_raise_its_version(photos, monkeypatch):
    collection = open_collection(photos)
    collection[:3].describe(Rows())
    monkeypatch.setattr(Rows, "describe", lambda self, image: (np.ones((3, 5)), np.ones((3, 2))))
    with pytest.raises(ValueError, match="5 numbers of float64, but 4 of float32 are stored: the version"):
        collection.describe(Rows())


# --- bounds ----------------------------------------------------------------------------------------------------------

SIZES = [24 * (20 + i) for i in range(7)]  # 4 float32 and a position


def test_features_unused_for_longest_make_room(photos, monkeypatch):
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", str(int(2.5 * sum(SIZES))))
    collection = open_collection(photos)
    for factor in (1.0, 2.0, 1.0, 3.0):  # the third renews the first
        bags = collection.describe(Rows(factor)).bags
        time.sleep(0.01)
    assert Rows.calls == 21 and Store().info().entries == 14 and Store().info().bytes == 2 * sum(SIZES)
    collection.describe(Rows(1.0))
    assert Rows.calls == 21
    collection.describe(Rows(2.0))
    assert Rows.calls == 28
    assert np.all(bags.values == 3 * Rows().transform(collection.paths).values)  # dropped, and mapped still


def test_a_collection_that_cannot_fit_is_not_kept_and_drops_nothing(photos, monkeypatch):
    collection = open_collection(photos)
    collection[:1].describe(Rows(2.0))
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", str(sum(SIZES) // 2))
    monkeypatch.setattr(describing, "BATCH_BYTES", 600)
    with pytest.warns(UserWarning, match=r"take about .* GB, more than the .* GB of \$PATCHBAG_CACHE_SIZE"):
        bags = collection.describe(Rows()).bags
    assert_same(bags, Rows().transform(collection.paths))
    assert Store().info().entries == 1 and Rows.calls < 1 + 3 + 7 + 7 + 1


def test_images_of_other_collections_in_the_same_shard_go_last(photos, tmp_path, monkeypatch):
    for i in range(10):
        save(tmp_path / "others" / "a" / f"{i}.png", level=30 + i, height=40)
    others, collection = open_collection(tmp_path / "others"), open_collection(photos)
    collection[:3].describe(Rows())
    others.describe(Rows())
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", str(int(1.2 * sum(SIZES))))
    assert_same(collection.describe(Rows()).bags, Rows().transform(collection.paths))
    assert Store().info()[1:3] == (7, sum(SIZES))
    assert_same(collection.describe(Rows()).bags, Rows().transform(collection.paths))


def test_a_bound_of_zero_stores_nothing_and_says_nothing(photos, own_store, monkeypatch):
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", "0")
    assert len(open_collection(photos).describe(Rows()).bags) == 7 and not own_store.exists()


def test_a_folder_that_cannot_be_written_is_only_a_warning(photos, own_store):
    own_store.write_text("in the way")
    collection = open_collection(photos)
    with pytest.warns(UserWarning, match="features are not kept in") as told:
        bags, kept, _ = collection.describe(Rows())
    assert len(told) == 1 and len(kept) == 7
    assert_same(bags, Rows().transform(collection.paths))


def test_clearing_forgets_everything_and_touches_nothing_else(photos, own_store):
    collection = open_collection(photos)
    assert Store().info() == (own_store, 0, 0, 20 * 10**9) and Store().clear() == 0 and not own_store.exists()
    bags = collection.describe(Rows()).bags
    (own_store / "notes.txt").write_text("mine")
    (own_store / "shard-99").mkdir()  # what a killed process left
    assert Store().info()[1:3] == (7, sum(SIZES))
    assert Store().clear() == 7 and Store().info()[1:3] == (0, 0)
    assert (own_store / "notes.txt").exists() and not list(own_store.glob("shard-*"))
    assert_same(collection.describe(Rows()).bags, bags)


def test_the_folder_and_the_bound_come_from_the_context_and_the_environment(monkeypatch, tmp_path, own_store):
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", "500M")
    assert Store().info() == (own_store, 0, 0, 500_000_000)
    with runtime_context(store=tmp_path / "there"):
        assert Store().folder == tmp_path / "there"
    monkeypatch.delenv("PATCHBAG_CACHE")
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert Store().folder == tmp_path / "patchbag"
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", "lots")
    with pytest.raises(ValueError, match="lots"):
        Store()


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("12", 12), ("4G", 4 * 10**9), ("1.5 kB", 1500), ("2TB", 2 * 10**12)]
)
def test_sizes_are_read_with_their_units(text, number):
    assert parse_bytes(text) == number


def test_the_index_is_an_ordinary_database(photos, own_store):
    open_collection(photos).describe(Rows())
    with sqlite3.connect(own_store / store.INDEX) as index:
        assert index.execute("SELECT count(*), sum(size) FROM entries").fetchone() == (7, sum(range(20, 27)))
        assert index.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    index.close()
