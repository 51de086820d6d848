"""Questions, and what the model has learned when it asks the next one."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from page.conftest import opened
from page.pages import N, made_page, made_vectors, settled, truth
from patchbag.active.pool_learner import PoolLearner
from patchbag.page.client import PageClient, PageError
from patchbag.similarity.graph.image_graph import ImageGraph


def test_questions_are_those_of_the_learner_itself(client):
    """The page adds nothing and loses nothing: the same images in the same order, the same predictions."""
    learner = PoolLearner(random_state=0).fit(ImageGraph.from_vectors(made_vectors(), power=1.0))
    page = PageClient(f"http://127.0.0.1:{client.port}")
    question, sought = page.ask(), 0
    for _ in range(25):
        (image,) = learner.query()
        assert question["image"]["id"] == image
        assert question["reason"] == "unlike" or not learner.seeks_class(int(image))
        sought += learner.seeks_class(int(image))
        learner.teach([image], [truth(image)])
        question = page.answer(int(image), truth(image))
    assert settled(client.page) and sought > 5
    names = [client.page.album.classes[c]["name"] for c in client.page.model.predictions.best.tolist()]
    assert names == learner.predict().tolist()
    p = {row["label"]: row["p"] for row in question["probabilities"]}
    new = learner.novelty()[question["image"]["id"]]
    mine = (1 - new) * learner.predict_proba()[question["image"]["id"]]
    for c, name in enumerate(learner.classes_):
        number = client.page.album.class_named(name)[0]
        assert p[number] == pytest.approx(mine[c], abs=1e-4)


def test_a_question_says_why_and_how_far_it_is(client):
    first = client.get("/api/ask").json()
    assert (
        first["ready"]
        and first["labels"] == 0
        and first["left"] == N
        and first["why"].startswith("Nothing has a label")
    )
    assert client.get("/api/ask").json()["image"] == first["image"]  # mine until I answer
    question = first
    for _ in range(12):
        image = question["image"]["id"]
        question = client.post("/api/ask/answer", json={"id": image, "name": truth(image), "wait": 5}).json()
        assert question["acknowledged"]
    assert question["labels"] == 12 and question["reason"] in ("doubt", "unlike", "stands") and question["why"]
    assert settled(client.page)
    point = client.get("/api/ask/curve").json()["points"][-1]
    assert point["labels"] == 12 and point["low"] <= point["expected"] <= point["high"] <= 1
    assert client.get("/api/ask").json()["accuracy"] == point


def test_nobody_is_asked_what_another_is_looking_at(client):
    def ask(who):
        return client.get("/api/ask", headers={"x-person": who}).json()["image"]["id"]

    people = [f"person {k}" for k in range(12)]
    asked = [ask(who) for who in people]
    assert len(set(asked)) == 12
    client.post("/api/ask/release", json={}, headers={"x-person": people[0]})
    assert ask("another") == asked[0]


def test_answers_of_several_people_at_once_are_all_there_once(client):
    said = {}

    def person(k):
        page = PageClient(f"http://127.0.0.1:{client.port}", person=f"person {k}")
        question = page.ask()
        for _ in range(6):
            image = question["image"]["id"]
            question = page.answer(image, truth(image), wait=0)
            said.setdefault(image, []).append(k)

    threads = [threading.Thread(target=person, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 36 and all(len(people) == 1 for people in said.values())
    assert np.flatnonzero(client.page.album.label >= 0).tolist() == sorted(said)
    assert settled(client.page) and client.page.model.pool.learner.n_labels_ == 36


def test_skipped_images_are_not_asked_again_and_the_end_is_said(folder):
    with opened(made_page(folder)) as client:
        question = client.get("/api/ask").json()
        skipped = question["image"]["id"]
        question = client.post("/api/ask/answer", json={"id": skipped, "skip": True}).json()
        seen = set()
        while question["image"]:
            image = question["image"]["id"]
            seen.add(image)
            question = client.post("/api/ask/answer", json={"id": image, "name": truth(image)}).json()
        assert seen == set(range(N)) - {skipped} and question["left"] == 0 and question["ready"]
        client.post("/api/undo", json={})
        assert client.get("/api/ask").json()["image"]["id"] == image


def test_the_model_goes_on_where_every_image_has_a_label_and_some_a_class_of_their_own(client):
    names = ["rare", "odd", *(truth(image) for image in range(2, N))]
    for image, name in enumerate(names):
        client.post("/api/labels", json={"ids": [image], "name": name})
    model = client.page.model
    end = time.time() + 20
    while model.predictions is None or model.predictions.version < model.version or model.version < 2:
        assert time.time() < end
        time.sleep(0.05)
    version = client.post("/api/labels", json={"ids": [5], "name": "coast"}).json()["version"]
    assert model.wait_for(version, 10)


def test_what_is_no_answer_is_refused(client):
    page = PageClient(f"http://127.0.0.1:{client.port}")
    for body in ({"id": 0}, {"id": 10_000, "name": "beach"}, {"id": 0, "label": 77}, {"id": 0, "name": "a/b"}):
        with pytest.raises(PageError, match=r"^4"):
            page.post("ask/answer", body)
    assert (client.page.album.label < 0).all()
