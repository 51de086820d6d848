"""Which images the gallery shows, and their pictures."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
from PIL import Image

from page.conftest import opened
from page.pages import N, made_page, settled, truth
from patchbag.page import session


def ids(client, **query):
    return client.get("/api/images", params=query).json()["ids"]


def test_filters_combine(taught):
    number = {row["name"]: row["id"] for row in taught.get("/api/classes").json()["classes"]}
    assert ids(taught, filter="unlabelled") == list(range(30, N))
    assert ids(taught, label=number["coast"]) == list(range(1, 30, 3))
    assert ids(taught, label=[number["coast"], number["beach"]], text="02") == [21, 22, 24, 25, 27, 28]
    assert ids(taught, predicted=number["forest"], filter="unlabelled") == list(range(32, N, 3))
    taught.page.album.broken[7] = "is damaged"
    assert ids(taught, filter="broken") == [7] and 7 not in ids(taught)


def test_sorts_and_groups(taught):
    doubt = taught.page.model.predictions.doubt
    found = ids(taught, sort="doubt")
    assert np.all(np.diff(doubt[found]) <= 0) and sorted(found) == list(range(N))
    assert ids(taught, sort="name", order="desc") == list(range(N))[::-1]
    near = ids(taught, sort="similarity", to=31)
    assert near[0] == 31 and {i % 3 for i in near[:20]} == {1}
    answer = taught.get("/api/images", params={"group": "predicted", "sort": "name"}).json()
    names = {row["id"]: row["name"] for row in taught.get("/api/classes").json()["classes"]}
    for group in answer["groups"]:
        inside = answer["ids"][group["start"] : group["start"] + group["count"]]
        assert inside == sorted(inside) and {truth(i) for i in inside} == {names[group["label"]]}
    assert sum(group["count"] for group in answer["groups"]) == N


def test_details_say_what_is_known(taught):
    (labelled, other) = taught.get("/api/images/details", params={"ids": "0,33"}).json()["images"]
    assert labelled["label"] == other["predicted"] and other["label"] is None
    assert labelled["votes"][0]["who"] == "me" and other["probability"] > 0.5
    one = taught.get("/api/images/33").json()
    assert one["probabilities"][0]["label"] == other["predicted"]
    assert sum(row["p"] for row in one["probabilities"]) + one["new"] == pytest.approx(1, abs=1e-3)
    columns = taught.get("/api/columns").json()
    assert columns["label"][0] == labelled["label"] and columns["predicted"][33] == other["predicted"]
    assert taught.get("/api/images/details", params={"ids": "1,999"}).status_code == 404
    assert taught.get("/api/images/details", params={"ids": "1;drop"}).status_code == 422


def test_thumbnails_are_made_once_and_kept_by_the_browser(client):
    (image,) = client.get("/api/images/details", params={"ids": "4"}).json()["images"]
    first = client.get(f"/api/images/4/thumb?v={image['v']}")
    assert first.headers["content-type"] == "image/jpeg" and "immutable" in first.headers["cache-control"]
    assert Image.open(io.BytesIO(first.content)).size == (32, 24)
    again = client.get("/api/images/4/thumb", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304 and not again.content
    (client.page.root / "004.png").unlink()  # what was made once is there
    assert client.get("/api/images/4/thumb").content == first.content
    assert client.get("/api/images/4/picture").status_code == 422
    assert client.get("/api/images/4/picture?side=9999").status_code == 422
    assert client.get("/api/images/999/thumb").status_code == 404


def test_a_wrong_label_is_found_by_the_model_that_was_not_told_it(taught):
    taught.post("/api/labels", json={"ids": [0], "name": "forest"})
    assert settled(taught.page)
    (item, *_) = taught.get("/api/check/errors").json()["items"]
    assert item["id"] == 0 and item["p_predicted"] > item["p_label"]
    assert ids(taught, filter="wrong") == [0]
    found = taught.get("/api/check/confusions").json()
    assert found["pairs"][0]["ids"] == [0] and found["labels"] == 30
    assert np.sum(found["matrix"]) == 30 and np.trace(found["matrix"]) == 29
    assert len(taught.get("/api/check/lonely?limit=5").json()["items"]) == 5


def test_the_map_keeps_together_what_is_alike(taught):
    made = taught.get("/api/map").json()
    for _ in range(400):
        made = taught.get("/api/map").json()
        if made["ready"] and not made["running"]:
            break
        time.sleep(0.05)
    assert made["method"] == "t-SNE" and made["ids"] == list(range(N))
    xy = np.array([made["x"], made["y"]]).T
    far = ((xy[:, None] - xy) ** 2).sum(axis=2) + 9 * np.eye(N)
    assert np.mean(far.argmin(axis=1) % 3 == np.arange(N) % 3) > 0.9
    assert xy.min() >= 0 and xy.max() <= 1


def test_images_beyond_the_pool_lie_among_those_like_them(folder, monkeypatch):
    monkeypatch.setattr(session, "POOL", 40)
    with opened(made_page(folder)) as client:
        client.get("/api/map")
        end = time.monotonic() + 60
        while (found := client.get("/api/map").json()).get("method") != "t-SNE":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert sorted(found["ids"]) == list(range(N)) and len(client.page.model.pool.ids) == 40
        xy = np.column_stack([found["x"], found["y"]])
        of = np.array(found["ids"]) % 3
        beyond = np.arange(N) >= 40
        far = np.linalg.norm(xy[beyond][:, None] - xy[~beyond], axis=2)
        assert (of[~beyond][far.argmin(axis=1)] == of[beyond]).mean() > 0.9
