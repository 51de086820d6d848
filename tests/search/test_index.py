# SPDX-License-Identifier: BSD-3-Clause
"""The index of a folder: what is found, and what happens when the folder changes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from patchbag import SearchIndex
from patchbag.collection import CollectionError
from patchbag.features.deep import DeepPatches
from patchbag.features.networks.preparation import pooled_vector
from patchbag.images.loading import ImageError
from patchbag.search import encoder as encoder_module
from patchbag.search.folder_index import clear_indexes
from patchbag.search.index_file import read_index, write_index
from patchbag.search.ranking import compare, nearest
from patchbag.search.representations import REPRESENTATIONS, Part, Representation, find_representation

pytestmark = pytest.mark.usefixtures("own_store")


@pytest.fixture(autouse=True)
def fake_network(monkeypatch):
    """A network that takes no time: the mean colours of a grid of patches; counts what it looks at."""
    seen: list[str] = []

    def look(source, model="", name=None):
        from patchbag.images.loading import load_image

        seen.append(str(name))
        array = load_image(source, mode="rgb", name=name).array
        small = Image.fromarray(array).resize((6, 6), Image.Resampling.BOX)
        return np.asarray(small, np.float32).ravel()

    monkeypatch.setattr("patchbag.features.networks.preparation.pooled_vector", look)
    monkeypatch.setattr(encoder_module, "QUICK", 10**6)
    return seen


@pytest.fixture
def photos(tmp_path):
    """Twelve images: two blends of colours, six degrees each."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    for name, color in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        (folder / name).mkdir(parents=True)
        for i in range(6):
            pixels = np.clip(np.array(color) + rng.normal(0, 25, (24, 24, 3)) + 4 * i, 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    old = time.time() - 100
    for path in folder.rglob("*.png"):
        os.utime(path, (old, old))
    return folder


def names(matches) -> list[str]:
    return ["/".join(match.image.split(os.sep)[-2:]) for match in matches]


def test_images_of_the_same_kind_are_found_first_and_the_query_is_not_found_itself(photos):
    found = SearchIndex(photos).update().search(photos / "red" / "0.png", top=5)
    assert sorted(names(found)) == [f"red/{i}.png" for i in range(1, 6)]
    assert [m.distance for m in found] == sorted(m.distance for m in found)


def test_a_copy_of_the_query_is_found_at_distance_zero(photos):
    shutil.copy(photos / "red" / "0.png", photos / "blue" / "copy.png")
    best = SearchIndex(photos).update().search(photos / "red" / "0.png", top=1)[0]
    assert names([best]) == ["blue/copy.png"] and best.distance == pytest.approx(0, abs=1e-6)


def test_a_query_from_outside_is_described_in_the_same_way_as_the_images(photos, tmp_path):
    index = SearchIndex(photos).update()
    data = (photos / "blue" / "3.png").read_bytes()
    outside = Image.open(photos / "blue" / "3.png")
    for query in (data, outside, np.asarray(outside)):
        best = index.search(query, top=1)[0]
        assert names([best]) == ["blue/3.png"] and best.distance == pytest.approx(0, abs=1e-6)


def test_an_index_is_read_again_and_nothing_is_described_twice(photos, fake_network):
    SearchIndex(photos).update()
    assert len(fake_network) == 12
    again = SearchIndex(photos)
    assert again.built and len(again) == 12
    assert not again.update().changes and len(fake_network) == 12
    assert again.search(photos / "red" / "1.png")[0].image.startswith(str(photos))
    assert len(fake_network) == 12


def test_new_changed_moved_and_deleted_files_are_noticed(photos, fake_network):
    first = SearchIndex(photos).update()
    vectors = {name: np.array(row) for name, row in zip(first.names, first.vectors)}
    fake_network.clear()
    (photos / "red" / "0.png").rename(photos / "blue" / "moved.png")
    (photos / "red" / "1.png").unlink()
    shutil.copy(photos / "blue" / "5.png", photos / "red" / "2.png")
    Image.fromarray(np.full((24, 24, 3), 90, np.uint8)).save(photos / "grey.png")
    index = SearchIndex(photos).update()
    assert (index.changes.new, index.changes.moved, index.changes.gone) == (1, 1, 2)
    assert [os.path.basename(name) for name in fake_network] == ["grey.png"]
    assert index.names == sorted(index.names) and "red/1.png" not in index.names
    row = dict(zip(index.names, index.vectors))
    assert np.array_equal(row["blue/moved.png"], vectors["red/0.png"])
    assert np.array_equal(row["red/2.png"], vectors["blue/5.png"])
    assert np.array_equal(row["red/3.png"], vectors["red/3.png"])
    assert not SearchIndex(photos).update().changes.new


def test_what_is_learned_is_learned_anew_when_the_folder_has_doubled(photos):
    index = SearchIndex(photos).update()
    mean = np.array(index._encoder.axes[0].mean)
    for i in range(12):
        Image.fromarray(np.full((24, 24, 3), 10 * i, np.uint8)).save(photos / f"{i}.png")
    index = SearchIndex(photos).update()
    assert index.changes.relearned and not np.allclose(index._encoder.axes[0].mean, mean)


def test_broken_files_are_named_and_not_tried_again_until_they_change(photos, fake_network):
    (photos / "broken.jpg").write_text("no image")
    os.utime(photos / "broken.jpg", (1e9, 1e9))
    index = SearchIndex(photos).update()
    assert "not an image" in index.failures["broken.jpg"] and len(index) == 12
    fake_network.clear()
    assert not SearchIndex(photos).update().changes and not fake_network
    Image.fromarray(np.full((24, 24, 3), 90, np.uint8)).save(photos / "broken.jpg")
    index = SearchIndex(photos).update()
    assert not index.failures and len(index) == 13


def test_one_image_can_be_searched(photos):
    alone = photos / "alone"
    alone.mkdir()
    shutil.copy(photos / "red" / "0.png", alone / "only.png")
    index = SearchIndex(alone).update()
    assert index.search(alone / "only.png") == []
    near, far = (index.search(photos / name)[0].distance for name in ("red/1.png", "blue/1.png"))
    assert near < far


def test_folders_without_images_and_images_that_cannot_be_read_are_clear_errors(photos, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CollectionError, match="empty has no images"):
        SearchIndex(tmp_path / "empty").update()
    with pytest.raises(CollectionError, match="there is no folder"):
        SearchIndex(tmp_path / "nowhere").update()
    (tmp_path / "empty" / "x.jpg").write_text("text")
    with pytest.raises(CollectionError, match=r"no image can be read \(x.jpg: is not an image"):
        SearchIndex(tmp_path / "empty").update()
    index = SearchIndex(photos)
    with pytest.raises(CollectionError, match="no index yet"):
        index.search(photos / "red" / "0.png")
    index.update()
    with pytest.raises(ImageError, match="there is no such file"):
        index.search(photos / "nothing.png")
    good, bad = index.search_many([str(photos / "red" / "0.png"), str(tmp_path / "empty" / "x.jpg")])
    assert len(good) == 10 and "x.jpg: is not an image" in str(bad)
    with pytest.raises(ValueError, match="did you mean 'color'"):
        SearchIndex(photos, "colour")


def test_a_part_of_an_image_finds_what_is_in_it(photos):
    half = np.hstack([np.full((24, 24, 3), (200, 40, 40), np.uint8), np.full((24, 24, 3), (40, 40, 200), np.uint8)])
    index = SearchIndex(photos).update()
    assert {name[:3] for name in names(index.search(half, 5, crop=(0, 0, 0.5, 1)))} == {"red"}
    assert {name[:3] for name in names(index.search(half, 5, crop=(0.5, 0, 1, 1)))} == {"blu"}
    with pytest.raises(ValueError, match="left, top, right, bottom"):
        index.search(half, crop=(0.5, 0, 0.2, 1))


def test_damaged_and_foreign_files_count_as_no_index(photos):
    path = SearchIndex(photos).update().path
    whole = path.read_bytes()
    for damaged in (whole[:100], whole[:-1], b"", b"x" * 50, whole[:60] + b"\0" + whole[61:]):
        path.write_bytes(damaged)
        index = SearchIndex(photos)
        assert not index.built
        assert len(index.update()) == 12 and SearchIndex(photos).built
    facts, _ = read_index(path)
    assert "red/0.png" in facts["names"]
    assert clear_indexes() == 1 and not SearchIndex(photos).built


def test_the_file_opens_as_safetensors(photos):
    from safetensors.numpy import load_file

    index = SearchIndex(photos).update()
    assert np.array_equal(load_file(index.path)["vectors"], index.vectors)


KILLED = """
import os, sys, threading, time, signal
from pathlib import Path
import numpy as np
from patchbag.search.index_file import write_index
path, version, delay = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
threading.Thread(target=lambda: (time.sleep(delay), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()
while True:
    version += 1
    write_index(path, {"v": version}, {"vectors": np.full((20000, 40), version, np.float32)})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_an_index_is_whole_whenever_its_writer_is_killed(tmp_path):
    path = tmp_path / "x.safetensors"
    write_index(path, {"v": 0}, {"vectors": np.zeros((20000, 40), np.float32)})
    rng = np.random.default_rng(0)
    for _ in range(4):  # a campaign is in fuzz/kills.py
        command = [sys.executable, "-c", KILLED, str(path), "0", str(rng.uniform(0.0, 0.05))]
        subprocess.run(command, check=False)
        facts, arrays = read_index(path)
        assert (arrays["vectors"] == facts["v"]).all()


def test_nothing_is_written_where_nothing_is_to_be_kept(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("PATCHBAG_CACHE_SIZE", "0")
    index = SearchIndex(photos).update()
    assert len(index.search(photos / "red" / "0.png", top=3)) == 3 and not index.path.exists()


def test_representations_that_learn_search_and_are_read_again(photos, monkeypatch):
    def steps():
        from patchbag import BagPCA, FisherVector, Normalizer, UniversalMixture, UniversalStatistics

        statistics = UniversalStatistics(UniversalMixture(1), BagPCA(6))
        return [("statistics", statistics), ("encoding", FisherVector()), ("normalize", Normalizer(["l2"]))]

    def feature():
        from patchbag import ColorStatistics

        return ColorStatistics(step=6, cell_sizes=(2,))

    monkeypatch.setitem(__import__("patchbag.stages", fromlist=["FEATURES"]).FEATURES, "tiny", feature)
    monkeypatch.setitem(REPRESENTATIONS, "tiny", Representation("tiny", "", (Part("tiny", steps, 5),) * 2))
    monkeypatch.setattr(encoder_module, "QUICK", 0)
    index = SearchIndex(photos, "tiny", n_jobs=1).update()
    expected = index.search(photos / "red" / "0.png", top=3)
    again = SearchIndex(photos, "tiny", n_jobs=1).update()
    assert not again.changes and names(again.search(photos / "red" / "0.png", top=3)) == names(expected)
    outside = np.asarray(Image.open(photos / "red" / "0.png"))
    assert again.search(outside, top=1)[0].distance == pytest.approx(0, abs=1e-5)
    shutil.copy(photos / "blue" / "1.png", photos / "new.png")
    Image.fromarray(np.full((24, 24, 3), 90, np.uint8)).save(photos / "grey.png")
    assert SearchIndex(photos, "tiny", n_jobs=1).update().changes[:3] == (1, 1, 0)


def test_words_are_compared_by_kullback_leibler():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), 7).astype(np.float32)
    expected = [sum(p[2][w] * np.log(p[2][w] / row[w]) for w in range(5)) for row in p]
    assert compare(p, p[2], "kl") == pytest.approx(np.array(expected), abs=1e-6)


def test_equal_distances_keep_the_order_of_the_index():
    assert nearest(np.array([0.5, 0.1, 0.5, np.inf, 0.1]), 3).tolist() == [1, 4, 0]
    assert nearest(np.array([np.inf]), 3).tolist() == []


def test_all_names_of_representations_are_their_own():
    assert all(name == one.name for name, one in REPRESENTATIONS.items())
    assert find_representation("deep").parts[0].features == "deep-pooled"


def test_the_short_way_to_the_network_gives_the_bits_of_the_long_one(monkeypatch):
    monkeypatch.undo()
    image = np.random.default_rng(0).integers(0, 256, (90, 70, 3), np.uint8)
    assert np.array_equal(pooled_vector(image), DeepPatches(output="pooled").transform([image]).values[0])


def test_diffusion_follows_chains_of_neighbours():
    from patchbag.search.diffusion import diffuse

    def at(*degrees):
        return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)

    # a crowd from 10 to 70 degrees, of which the far end is as far from the query at 0 as the lonely point below it
    crowd, lonely = np.linspace(10, 70, 31), -69.0
    weights = diffuse(at(*crowd, lonely), at(0)[0])
    assert weights.max() == 1 and weights[30] > weights[31]
    assert diffuse(at(30), at(0)[0]) == pytest.approx([np.cos(np.radians(30))])


def test_diffused_matches_are_ranked_from_zero_on(photos):
    index = SearchIndex(photos).update()
    found = index.search(photos / "red" / "0.png", top=5, diffuse=True)
    assert sorted(names(found)) == [f"red/{i}.png" for i in range(1, 6)]
    assert found[0].distance == 0 and found[-1].distance <= 1


@pytest.fixture
def textures(tmp_path):
    """A folder of two images each of narrow and of wide stripes."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "textures"
    folder.mkdir()
    for name, period in (("a0", 5), ("a1", 5), ("b0", 17), ("b1", 17)):
        wave = 120 + 80 * np.sin(2 * np.pi * np.arange(96) / period + rng.uniform(0, 6))
        pixels = np.repeat(wave[None, :, None], 64, axis=0) * [1, 0.7, 0.4] + rng.normal(0, 6, (64, 96, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{name}.png")
    return folder


def test_patches_are_searched_as_sets(textures):
    index = SearchIndex(textures, "smp", n_jobs=1).update()
    assert index.vectors.shape == (4, 0)
    for name, twin in (("a0", "a1"), ("b1", "b0")):
        found = SearchIndex(textures, "smp", n_jobs=1).update().search(textures / f"{name}.png", top=3)
        assert os.path.basename(found[0].image) == f"{twin}.png" and len(found) == 3
    with pytest.raises(ValueError, match="no angles"):
        index.search(textures / "a0.png", diffuse=True)


@pytest.mark.parametrize("by", ["klk", "ppk"])
def test_mixtures_are_searched_by_their_kernels(tmp_path, monkeypatch, by):
    from patchbag import MAPAdaptation, MixtureKernel, UniversalMixture, UniversalStatistics
    from patchbag.mixture.adaptation import Mixtures
    from patchbag.search import mixtures

    rng = np.random.default_rng(0)
    bags = [rng.normal(i % 2, 1 + 0.1 * i, (60, 3)) for i in range(5)]
    statistics = UniversalStatistics(UniversalMixture(4, random_state=0)).fit(bags)
    adapted = MAPAdaptation(5.0).fit_transform(statistics.transform(bags))
    monkeypatch.setattr(mixtures, "DIMENSION", 3)
    monkeypatch.setattr(mixtures, "ROWS", 2)
    rows = mixtures.flatten(adapted)
    assert rows.shape == (5, 4 * 7) and isinstance(mixtures.unflatten(rows), Mixtures)
    kernel = MixtureKernel(by, **({"gamma": 1.0} if by == "klk" else {"normalize": True})).fit(adapted)
    similarity = kernel.transform(adapted[2:3])[0]
    expected = -np.log(similarity) if by == "klk" else 1 - similarity
    assert compare(rows, rows[2], by) == pytest.approx(expected, abs=2e-4)


def test_an_index_by_mixtures_is_kept_and_read_again(textures):
    first = SearchIndex(textures, "klk", n_jobs=1).update().search(textures / "a0.png", top=3)
    again = SearchIndex(textures, "klk", n_jobs=1).update().search(textures / "a0.png", top=3)
    assert len(first) == 3 and again == first and first[0].distance > 0
    outside = SearchIndex(textures, "klk", n_jobs=1).search((textures / "a0.png").read_bytes() + b"\0", top=1)[0]
    assert os.path.basename(outside.image) == "a0.png" and outside.distance == pytest.approx(0, abs=1e-3)
