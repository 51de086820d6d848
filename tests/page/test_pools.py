"""Folders that are larger than a pool: every image is predicted, and may be asked for."""

from __future__ import annotations

import time

import numpy as np
import pytest

from page.conftest import opened
from page.pages import made_page, make_folder, settled, truth
from patchbag.page import pools, session
from patchbag.page.pools import choose_pool


def test_a_small_folder_is_its_own_pool():
    ids = np.array([2, 3, 5])
    assert choose_pool(ids, np.zeros(3, bool), np.full(3, -1.0), 0, 0, 3).tolist() == [2, 3, 5]


def test_a_pool_has_labels_doubtful_images_and_others_by_chance():
    ids, doubt = np.arange(0, 2000, 2), np.full(1000, 0.1)
    labelled = np.arange(1000) % 20 == 0
    doubt[501:511] = 0.9
    chosen = choose_pool(ids, labelled, doubt, 0, 0, 200)
    assert len(set(chosen.tolist())) == 200 and set(chosen.tolist()) <= set(ids.tolist())
    assert set(ids[labelled].tolist()) <= set(chosen.tolist())  # 50 with a label
    assert set(ids[501:511].tolist()) <= set(chosen.tolist())  # a tenth of the other places are 15
    again = choose_pool(ids, labelled, doubt, 0, 0, 200)
    other = choose_pool(ids, labelled, doubt, 1, 0, 200)
    assert again.tolist() == chosen.tolist()
    assert 60 < len(np.intersect1d(chosen, other)) < 110  # all but a few of those by chance are others
    labelled[:] = True
    assert len(choose_pool(ids, labelled, doubt, 0, 0, 200)) == 100


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A folder of 60 images whose pool has 20."""
    monkeypatch.setattr(session, "POOL", 20)
    monkeypatch.setattr(pools, "FEWEST", 6)
    with opened(made_page(make_folder(tmp_path / "photos"))) as client:
        yield client


def test_every_image_of_a_large_folder_is_predicted_and_asked_for_in_the_end(large):
    page, question, asked = large.page, large.get("/api/ask").json(), []
    end = time.monotonic() + 60
    while len(asked) < 60:
        assert time.monotonic() < end
        if question["image"] is None:  # the next pool is being made
            time.sleep(0.02)
            question = large.get("/api/ask").json()
            continue
        asked.append(question["image"]["id"])
        question = large.post("/api/ask/answer", json={"id": asked[-1], "name": truth(asked[-1])}).json()
        if len(asked) == 9:
            assert settled(page)
            best = page.model.predictions.best
            assert [page.album.classes[c]["name"] for c in best] == [truth(i) for i in range(60)]
    assert sorted(asked) == list(range(60))
    turn = page._turn
    assert settled(page) and page._turn == turn  # there is nothing left to draw
    assert len(large.get("/api/export/labels.csv").text.splitlines()) == 61
