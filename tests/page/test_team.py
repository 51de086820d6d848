"""Several servers of one Postgres database: what is said to one of them all know."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import text

from page.conftest import opened
from page.pages import made_page, truth
from patchbag.page import PageClient, database
from patchbag.page.folder import keep_up

# FastAPI hides this one while it makes routes; what another server's thread does to the filters can undo that
pytestmark = pytest.mark.filterwarnings("ignore:The 'alias' attribute")


@pytest.fixture
def servers(postgres, folder):
    with opened(made_page(folder, database=postgres)) as first, opened(made_page(folder, database=postgres)) as second:
        yield first, second
        with first.page.database.writing() as connection:
            connection.execute(text("TRUNCATE images, classes, votes, actions, curve, leases, news"))


def person(client, name):
    return PageClient(f"http://127.0.0.1:{client.port}", person=name)


def soon(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def alike(servers):
    first, second = (client.page.album for client in servers)
    return first.label.tolist() == second.label.tolist() and first.classes == second.classes


def test_a_team_labels_in_postgres_and_finds_its_labels_again(postgres, folder):
    with opened(made_page(folder, database=postgres)) as client:
        for who in ("Ann", "Bo"):
            page = person(client, who)
            question = page.ask()
            for _ in range(5):
                image = question["image"]["id"]
                question = page.answer(image, truth(image))
        page.label([image], "another")
        page.undo()
        before = client.page.album.label.tolist()
    with opened(made_page(folder, database=postgres)) as client:
        assert client.page.album.label.tolist() == before and sum(label >= 0 for label in before) == 10
        assert client.get("/api/state").json()["people"] == ["Ann", "Bo"]
        with client.page.database.writing() as connection:
            connection.execute(text("TRUNCATE images, classes, votes, actions, curve, leases, news"))


def test_nobody_is_asked_what_another_is_asked_for_by_another_server(servers):
    asked, errors = [], []

    def answer(client, name):
        page = person(client, name)
        try:
            question = page.ask()
            for _ in range(3):
                image = question["image"]["id"]
                asked.append(image)
                question = page.answer(image, truth(image))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=answer, args=(servers[k % 2], f"person {k}")) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(asked) == len(set(asked)) == 48
    soon(lambda: alike(servers))
    first, second = (client.page.album for client in servers)
    assert sorted(first.classes) == [0, 1, 2]  # each class was opened once
    assert [first.classes[first.label[i]]["name"] for i in asked] == [truth(i) for i in asked]
    assert len({action.id for action in first.journal.latest(100)}) == 48
    soon(lambda: all(client.page.model.pool.learner.n_labels_ == 48 for client in servers))  # both have learned it
    assert first.votes == second.votes


def test_disagreements_across_servers_are_kept_and_shown(servers):
    ann, bo = person(servers[0], "Ann"), person(servers[1], "Bo")
    ann.label([3], "beach")
    bo.label([3], "coast")
    for client in servers:
        soon(lambda client=client: client.get("/api/state").json()["disagreements"] == 1)
        (item,) = client.get("/api/check/disagreements").json()["items"]
        names = {row["id"]: row["name"] for row in client.get("/api/classes").json()["classes"]}
        assert {vote["who"]: names[vote["label"]] for vote in item["votes"]} == {"Ann": "beach", "Bo": "coast"}
        (shown,) = client.get("/api/images/details?ids=3").json()["images"]
        assert names[shown["label"]] == "coast" and shown["disagreement"]


def test_what_was_done_at_one_server_is_undone_at_another(servers):
    person(servers[0], "Ann").label([1, 2, 3], "beach")
    person(servers[1], "Ann").undo()
    soon(lambda: alike(servers))
    assert not (servers[0].page.album.label >= 0).any()
    with pytest.raises(Exception, match="nothing to undo"):
        person(servers[0], "Ann").undo()


def test_the_other_page_is_told_at_once(servers):
    page, told = servers[1].page, []
    page.album.listeners.append(lambda updates, _: told.append((time.monotonic(), updates)))
    begun = time.monotonic()
    person(servers[0], "Ann").label([7], "beach")
    soon(lambda: told)
    assert told[0][1] == [(7, -1, 0)] and told[0][0] - begun < database.WAIT


def test_a_new_file_is_one_image_for_all(servers, folder):
    (folder / "000.png").rename(folder / "moved.png")
    (folder / "new.png").write_bytes((folder / "001.png").read_bytes())
    found = [keep_up(client.page.album) for client in servers]
    assert found[0]["added"] and not any(found[1].values())
    for client in servers:
        soon(lambda client=client: "new.png" in client.page.album.names)
        assert client.page.album.names.count("new.png") == 1
    first, second = (client.page.album for client in servers)
    assert first.names == second.names and first.gone.tolist() == second.gone.tolist()


def test_a_server_that_is_too_far_behind_reads_everything_anew(servers, monkeypatch):
    monkeypatch.setattr(database, "NEWS", 2)
    behind = servers[1].page
    with behind.album.lock:  # it hears nothing meanwhile
        for image in range(9):
            person(servers[0], "Ann").label([image], truth(image))
    soon(lambda: alike(servers))
    soon(lambda: behind.model.pool.learner.n_labels_ == 9)


def test_a_lost_connection_is_made_again(servers):
    with servers[0].page.database.writing() as connection:
        connection.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"))
    person(servers[0], "Ann").label([5], "beach")
    soon(lambda: alike(servers) and servers[1].page.album.label[5] >= 0)
