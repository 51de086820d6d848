"""Labels, classes, and undo of all of it."""

from __future__ import annotations

import numpy as np

from page.conftest import opened
from page.pages import made_page, settled
from patchbag.page.album import Album


def labels(client, ids=(0, 1, 2)):
    found = client.get("/api/images/details", params={"ids": ",".join(map(str, ids))}).json()["images"]
    names = {row["id"]: row["name"] for row in client.get("/api/classes").json()["classes"]}
    return [names.get(image["label"]) for image in found]


def post(client, path, body=None, who="Ann"):
    reply = client.post(f"/api/{path}", json=body or {}, headers={"x-person": who})
    assert reply.status_code < 300, reply.text
    return reply.json()


def snapshot(client):
    album = client.page.album
    return (
        album.label.tolist(),
        album.skipped.tolist(),
        {i: {w: v[0] for w, v in said.items()} for i, said in album.votes.items()},
        {i: dict(entry) for i, entry in album.classes.items()},
        list(album.names),
    )


def test_labels_are_given_to_many_images_and_taken_away(client):
    answer = post(client, "labels", {"ids": [0, 1, 2], "name": "beach"})
    assert answer["changed"] == 3 and labels(client) == ["beach"] * 3
    post(client, "labels", {"ids": [1], "label": None})
    assert labels(client) == ["beach", None, "beach"]
    assert client.get("/api/images", params={"filter": "labelled"}).json()["ids"] == [0, 2]


def test_everything_can_be_undone_and_redone_step_by_step(taught):
    states = [snapshot(taught)]
    number = {row["name"]: row["id"] for row in taught.get("/api/classes").json()["classes"]}
    steps = [
        ("post", "labels", {"ids": [40, 41], "name": "new"}),
        ("post", "labels/accept", {"ids": [50, 51, 52]}),
        ("post", "skip", {"ids": [55]}),
        ("patch", f"classes/{number['beach']}", {"name": "strand", "color": "#112233", "key": "x"}),
        ("post", f"classes/{number['coast']}/merge", {"into": number["forest"]}),
        ("post", f"classes/{number['beach']}/split", {"name": "dunes", "ids": [0, 3, 1]}),
        ("delete", f"classes/{number['forest']}", None),
        ("post", "check/keep", {"keep": 0, "ids": [0, 3, 6]}),
        ("post", "export/folder", {"how": "move"}),
        ("post", "export/folder", {"how": "copy"}),
        ("post", "import/csv", None),
    ]
    for method, path, body in steps:
        if path == "import/csv":
            name = taught.page.album.names[20]
            content = {"content": f"image,label\n{name},dunes\n".encode(), "headers": {"content-type": "text/csv"}}
            reply = taught.post("/api/import/csv", **content)
        elif method == "delete":
            reply = taught.delete(f"/api/{path}", headers={"content-type": "application/json"})
        else:
            reply = getattr(taught, method)(f"/api/{path}", json=body)
        assert reply.status_code == 200, (path, reply.text)
        states.append(snapshot(taught))
        assert states[-1] != states[-2] or path == "export/folder"
    for before in reversed(states[:-1]):
        answer = taught.post("/api/undo", json={})
        assert answer.status_code == 200 and answer.json()["conflicts"] == 0, answer.text
        assert snapshot(taught) == before
    for after in states[1:]:
        assert taught.post("/api/redo", json={}).json()["conflicts"] == 0
        assert snapshot(taught) == after
    assert taught.post("/api/redo", json={}).status_code == 409


def test_undo_is_mine_and_leaves_what_others_changed_since(client):
    post(client, "labels", {"ids": [0, 1], "name": "beach"}, "Ann")
    post(client, "labels", {"ids": [1], "name": "coast"}, "Bo")
    assert labels(client) == ["beach", "coast", None]
    answer = post(client, "undo", who="Ann")
    assert answer["conflicts"] == 0 and labels(client) == [None, "coast", None]  # Bo's own word stands
    assert client.post("/api/undo", json={}, headers={"x-person": "Cy"}).status_code == 409


def test_a_class_that_was_opened_by_a_label_stays_while_another_uses_it(client):
    post(client, "labels", {"ids": [0], "name": "beach"}, "Ann")
    post(client, "labels", {"ids": [1], "name": "beach"}, "Bo")
    assert post(client, "undo", who="Ann")["conflicts"] == 1  # the class
    assert labels(client) == [None, "beach", None]


def test_people_who_disagree_are_shown_and_the_last_word_counts(client):
    post(client, "labels", {"ids": [0], "name": "beach"}, "Ann")
    post(client, "labels", {"ids": [0], "name": "coast"}, "Bo")
    (item,) = client.get("/api/check/disagreements").json()["items"]
    assert item["id"] == 0 and {vote["who"] for vote in item["votes"]} == {"Ann", "Bo"}
    assert labels(client)[0] == "coast"
    assert client.get("/api/images", params={"filter": "disagree"}).json()["ids"] == [0]
    post(client, "labels", {"ids": [0], "name": "coast"}, "Ann")
    assert client.get("/api/check/disagreements").json()["items"] == []


def test_a_removed_class_gives_its_images_back(taught):
    number = {row["name"]: row["id"] for row in taught.get("/api/classes").json()["classes"]}
    taught.delete(f"/api/classes/{number['beach']}", headers={"content-type": "application/json"})
    assert labels(taught) == [None, "coast", "forest"]
    assert settled(taught.page)
    p = taught.get("/api/images/0").json()["probabilities"]
    assert {row["label"] for row in p} == {number["coast"], number["forest"]}


def test_a_key_is_that_of_one_class_and_a_name_too(taught):
    rows = taught.get("/api/classes").json()["classes"]
    assert [row["key"] for row in rows] == ["1", "2", "3"]
    reply = taught.patch(f"/api/classes/{rows[0]['id']}", json={"key": "2"}).json()
    assert [row["key"] for row in reply["classes"]] == ["2", None, "3"]
    assert taught.patch(f"/api/classes/{rows[0]['id']}", json={"name": "coast"}).status_code == 400
    for bad in ("", "a/b", "..", "unlabelled", "x" * 101):
        assert taught.post("/api/labels", json={"ids": [0], "name": bad}).status_code == 400, bad


def test_parts_of_a_class_are_proposed_by_likeness(taught):
    number = {row["name"]: row["id"] for row in taught.get("/api/classes").json()["classes"]}
    taught.post(f"/api/classes/{number['coast']}/merge", json={"into": number["beach"]})
    assert settled(taught.page)
    parts = taught.post(f"/api/classes/{number['beach']}/split", json={"parts": 2}).json()["parts"]
    assert sorted(np.unique(np.array(part) % 3).tolist() for part in parts) == [[0], [1]]


def test_labels_are_there_after_a_restart(folder):
    with opened(made_page(folder)) as client:
        post(client, "labels", {"ids": [0], "name": "beach"}, "Ann")
        post(client, "labels", {"ids": [0], "name": "coast"}, "Bo")
        post(client, "skip", {"ids": [5]}, "Ann")
        before = snapshot(client)
    with opened(made_page(folder)) as client:
        assert snapshot(client) == before
        assert post(client, "undo", who="Ann")["text"] == "skip 1 image"
        post(client, "undo", who="Ann")
        assert (
            post(client, "labels", {"ids": [1], "name": "third"}, "Ann")["label"] == 2
        )  # numbers are never used again


def test_classes_come_and_go_faster_than_the_model_learns(taught):
    for turn in range(6):
        for row in taught.get("/api/classes").json()["classes"]:
            taught.delete(f"/api/classes/{row['id']}", headers={"content-type": "application/json"})
        for c in range(3):
            taught.post("/api/labels", json={"ids": list(range(c, 30, 3)), "name": f"turn {turn}, {c}"})
    assert settled(taught.page)
    names = [taught.page.album.classes[c]["name"] for c in taught.page.model.predictions.best.tolist()]
    assert names == [f"turn 5, {i % 3}" for i in range(len(names))]


def test_a_label_that_is_kept_is_not_doubted_again(taught, folder):
    number = {row["name"]: row["id"] for row in taught.get("/api/classes").json()["classes"]}
    taught.post("/api/labels", json={"ids": [0], "label": number["forest"]})  # it is a beach
    assert settled(taught.page)

    def doubted():
        found = [item["id"] for item in taught.get("/api/check/errors").json()["items"]]
        assert found == taught.get("/api/images", params={"filter": "wrong"}).json()["ids"]
        return found

    assert doubted() == [0]
    assert taught.post("/api/check/confirm", json={"ids": [0, 59]}).json()["changed"] == 1
    assert doubted() == []
    assert Album(folder, taught.page.database).kept == {0: number["forest"]}  # it is on disk
    taught.post("/api/undo", json={})
    assert doubted() == [0]
    taught.post("/api/redo", json={})
    assert doubted() == []
    taught.post("/api/labels", json={"ids": [0], "label": number["coast"]})  # another label has not been looked at
    assert settled(taught.page) and doubted() == [0]
