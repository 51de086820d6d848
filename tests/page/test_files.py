"""The page keeps up with its folder, and describes it while it is used."""

from __future__ import annotations

import base64
import io
import json
import os
import time

import httpx
import numpy as np
import pytest
from PIL import Image

from page.conftest import opened
from page.pages import made_page, made_vectors, settled
from patchbag.collection import CollectionError
from patchbag.page import describing
from patchbag.page.client import PageClient
from patchbag.page.describing import Child
from patchbag.page.folder import keep_up
from patchbag.page.session import Page


def until(condition, seconds=30):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end
        time.sleep(0.02)


def test_moved_files_keep_their_labels_and_ids(folder):
    page = made_page(folder)
    album = page.album
    try:
        album.set_files([{"id": i, "digest": d} for i, d in enumerate(map(_digest, sorted(folder.glob("*.png"))))])
        number, changes = album.new_class("beach")
        album.change("Ann", "label", changes + album.say("Ann", [(5, number)]))
        (folder / "sub").mkdir()
        os.rename(folder / "005.png", folder / "sub" / "other name.png")
        (folder / "006.png").unlink()
        news = keep_up(album)
        assert news == {"added": [], "renamed": [5], "gone": [6], "changed": []}
        assert album.names[5] == "sub/other name.png" and album.label[5] == number and album.gone[6]
        Image.new("RGB", (9, 9)).save(folder / "006.png")
        news = keep_up(album)
        assert news["added"] == [6] and not album.gone[6] and news["changed"] == [6]
    finally:
        page.stop()


def test_a_file_that_is_moved_before_it_was_read_keeps_its_label(folder):
    page = made_page(folder)
    album = page.album
    try:
        assert album.digests[5] is None
        number, changes = album.new_class("beach")
        album.change("Ann", "label", changes + album.say("Ann", [(5, number)]))
        os.rename(folder / "005.png", folder / "elsewhere.png")
        (folder / "006.png").rename(folder / "touched.png")
        os.utime(folder / "touched.png", (1, 1))
        news = keep_up(album)
        assert news["renamed"] == [5] and news["gone"] == [6]
        assert album.names[5] == "elsewhere.png" and album.label[5] == number
    finally:
        page.stop()


def _digest(path):
    from patchbag.collection.files import content_digest

    return content_digest(path).hex()


def test_labels_of_the_folder_are_taken_over_and_can_be_changed(picture_folder):
    with opened(made_page(picture_folder, vectors=made_vectors(36))) as client:
        state = client.get("/api/state").json()
        assert [(row["name"], row["count"]) for row in state["classes"]] == [
            ("bars", 12),
            ("diagonals", 12),
            ("stripes", 12),
        ]
        assert state["people"] == []
        client.post("/api/labels", json={"ids": [0], "name": "stripes"})
        assert client.get("/api/state").json()["disagreements"] == 0  # a folder is nobody
    with opened(made_page(picture_folder, vectors=made_vectors(36))) as client:
        assert client.get("/api/images/0").json()["label"] == 2
        client.post("/api/labels", json={"ids": [1], "label": None})
        client.delete("/api/classes/1", headers={"content-type": "application/json"})
    with opened(made_page(picture_folder, vectors=made_vectors(36))) as client:  # what was taken back stays so
        state = client.get("/api/state").json()
        assert [row["name"] for row in state["classes"]] == ["bars", "stripes"] and state["labelled"] == 36 - 1 - 12
        assert state["skipped"] == 0 and client.get("/api/images/1").json()["votes"] == []


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A folder that is described by the network, with a file that is none and a copy."""
    root = tmp_path_factory.mktemp("real") / "photos"
    root.mkdir()
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:64, :96]
    for i in range(12):
        blobs = Image.fromarray(rng.integers(0, 256, (4, 6, 3), np.uint8)).resize((96, 64), Image.Resampling.BICUBIC)
        wave = 50 * np.sin((x if i % 2 else y) / 3)[..., None]
        pixels = np.clip(np.asarray(blobs) + wave, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(root / f"{i:02d}.png")
    Image.open(root / "03.png").save(root / "copy of 03.jpg", quality=92)
    (root / "broken.png").write_bytes(b"\x89PNG and nothing else")
    page = Page(root, store=tmp_path_factory.mktemp("store"), jobs=1)
    with opened(page) as client:
        PageClient(f"http://127.0.0.1:{client.port}").wait(120)
        until(lambda: page.finder._index is not None, 60)
        yield client


def teach(real):
    for i in range(12):
        real.post("/api/labels", json={"ids": [real.page.album.names.index(f"{i:02d}.png")], "name": "ab"[i % 2]})


def test_what_cannot_be_read_is_said(real):
    (found,) = real.get("/api/images", params={"filter": "broken"}).json()["ids"]
    image = real.get(f"/api/images/{found}").json()
    assert image["name"] == "broken.png" and "not an image" in image["broken"]
    state = real.get("/api/state").json()
    assert state["broken"] == 1 and real.get("/api/ask").json()["left"] == state["images"] - 1


def test_small_pictures_are_made_before_anybody_looks_and_come_together(real):
    ids = real.get("/api/images").json()["ids"]
    until(lambda: all(real.page.pictures.made(i) is not None for i in ids), 60)
    query = {"ids": ",".join(map(str, ids)), "thumbs": True}
    thumbs = real.get("/api/images/details", params=query).json()["thumbs"]
    assert sorted(map(int, thumbs)) == sorted(ids)
    first = real.get(f"/api/images/{ids[0]}/thumb").content
    assert base64.b64decode(thumbs[str(ids[0])]) == first
    assert Image.open(io.BytesIO(first)).size == (96, 64)
    assert real.get("/api/images/details", params={"ids": str(ids[0])}).json()["thumbs"] == {}


def test_search_by_image_part_and_picture(real):
    names = real.page.album.names
    place = names.index("03.png")
    (best, *_) = real.get(f"/api/search/image/{place}?top=5").json()["matches"]
    assert names[best["id"]] == "copy of 03.jpg"
    content = (real.page.root / "03.png").read_bytes()
    (best, *_) = real.post("/api/search/upload", content=content, headers={"content-type": "image/png"}).json()[
        "matches"
    ]
    assert best["id"] == place and best["distance"] == pytest.approx(0, abs=1e-3)
    part = {"left": 0.1, "top_": 0.1, "right": 0.9, "bottom": 0.9, "top": 3}
    assert len(real.get(f"/api/search/image/{place}", params=part).json()["matches"]) == 3
    assert real.get(f"/api/search/image/{place}?left=0.1").status_code == 422


def test_copies_are_found_and_one_is_kept(real):
    real.post("/api/check/duplicates", json={})
    until(lambda: real.get("/api/check/duplicates").json()["ready"])
    names = real.page.album.names
    copies = {names.index("03.png"), names.index("copy of 03.jpg")}
    groups = real.get("/api/check/duplicates").json()["groups"]
    group = next(set(group["ids"]) for group in groups if copies <= set(group["ids"]))
    keep = names.index("03.png")
    real.post("/api/check/keep", json={"keep": keep, "ids": sorted(group)})
    assert real.get("/api/images", params={"filter": "skipped"}).json()["ids"] == sorted(group - {keep})
    real.post("/api/undo", json={})


def test_why_adds_up_to_the_score(real):
    teach(real)
    assert settled(real.page)
    image = real.page.album.names.index("copy of 03.jpg")
    found = real.get(f"/api/images/{image}/why").json()
    grid = np.array(found["grid"]["values"])
    assert grid.shape == (16, 24)  # the shape of the picture
    assert found["base"] + grid.sum() == pytest.approx(found["score"], abs=1e-4)
    assert found["label"] == real.page.album.class_named("b")[0] and found["runner_up"] != found["label"]
    assert real.page.album.names[found["voters"][0]["id"]] == "03.png"  # the picture that it is a copy of


def test_a_model_and_a_report_are_made_of_the_labels(real):
    from patchbag import Categorizer

    teach(real)
    for what in ("model", "report"):
        assert real.post(f"/api/export/{what}", json={}).status_code == 202
    until(lambda: not any(entry["running"] for entry in real.get("/api/export").json().values()), 90)
    status = real.get("/api/export").json()
    assert status["model"]["ready"] and status["report"]["ready"], status
    assert real.get("/api/export/report").text.startswith("<!doctype html>")
    path = real.page.root.parent / "fetched.patchbag"
    path.write_bytes(real.get("/api/export/model").content)
    model = Categorizer.load(path)
    assert model.predict([str(real.page.root / "05.png")])[0] == "b"


def test_new_files_appear_by_themselves_and_are_told_of(real):
    teach(real)
    before = real.get("/api/state").json()["images"]
    seen = []
    with httpx.stream("GET", f"http://127.0.0.1:{real.port}/api/events", timeout=30, trust_env=False) as stream:
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: state"
        Image.open(real.page.root / "05.png").rotate(180).save(real.page.root / "later.png")
        for line in lines:
            if line.startswith("data: ") and seen and seen[-1] == "images":
                assert json.loads(line[6:])["total"] == before + 1
                break
            if line.startswith("event: "):
                seen.append(line.removeprefix("event: "))
    place = real.page.album.names.index("later.png")
    until(lambda: place in real.page.described)
    until(lambda: real.get(f"/api/images/{place}").json()["predicted"] is not None)


def test_a_file_that_kills_its_reader_is_set_aside(tmp_path, monkeypatch):
    """The child dies at one file; the others are described all the same."""
    reports = []
    child = Child(tmp_path, ("deep-pool", None, None), tmp_path, 1)

    def run(named, block):
        done = []
        for start in range(0, len(named), block):
            part = [number for number, _ in named[start : start + block]]
            if 7 in part:
                return
            done = part
            yield {"done": done, "failed": {}, "digests": {}}

    monkeypatch.setattr(child, "_reports", run)
    child.run([(i, f"{i}.png") for i in range(200)], reports.append)
    failed = {int(number) for report in reports for number in report["failed"]}
    done = {number for report in reports for number in report["done"]}
    assert failed == {7} and done == set(range(200)) - {7}


def test_settings_of_a_recipe_reach_the_description_and_the_model(tmp_path, folder):
    page = Page(
        folder,
        recipe="deep-pool",
        settings={"features__max_side": 64},
        watch=False,
        store=tmp_path / "store",
        jobs=1,
    )
    try:
        assert page.categorizer().pipeline()["features"].max_side == 64
        assert page._recipe[2] == {"features__max_side": 64}
    finally:
        page.database.close()


def test_a_child_that_was_begun_early_describes_and_ends_with_the_page(folder, tmp_path):
    describing.prepare()
    (begun,) = describing._begun
    reports = []
    Child(folder, ("deep-pool", None, None), tmp_path / "store", 1).run([(0, "000.png")], reports.append)
    assert reports[0]["done"] == [0] and begun.returncode is not None and not describing._begun
    describing.prepare()
    idle = describing._begun.pop()
    assert idle.communicate("", timeout=60)[0] == "" and idle.returncode == 0


def test_a_folder_that_is_not_there_is_named_and_nothing_is_made(tmp_path):
    with pytest.raises(CollectionError, match=r"there is no folder .*nowhere$"):
        made_page(tmp_path / "nowhere")
    (tmp_path / "a.jpg").write_text("a file")
    with pytest.raises(CollectionError, match=r"a\.jpg is not a folder"):
        made_page(tmp_path / "a.jpg")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jpg"]
