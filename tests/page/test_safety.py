"""What the page refuses, and to whom."""

from __future__ import annotations

import os
import shutil
import struct
import zlib

import pytest
from PIL import Image

from page.conftest import opened
from page.pages import made_page, make_folder
from patchbag.images import decoding
from patchbag.images.loading import ImageError
from patchbag.page import decoder
from patchbag.page.database import Database, DatabaseError
from patchbag.page.safety import new_token

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "", "127.0.0.1@evil.example", "10.1.2.3:8123"]
)
def test_a_name_that_the_page_does_not_go_by_is_not_answered(client, host):
    assert client.get("/api/state", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:9999"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
    ],
)
def test_another_page_cannot_change_anything(client, headers):
    reply = client.post("/api/labels", content=b'{"ids": [0], "name": "x"}', headers={**JSON, **headers})
    assert reply.status_code in (403, 415) and not client.page.album.votes


def test_the_page_itself_can(client):
    own = {**JSON, "origin": f"http://127.0.0.1:{client.port}", "sec-fetch-site": "same-origin"}
    assert client.post("/api/labels", content=b'{"ids": [0], "name": "x"}', headers=own).status_code == 200


def test_every_answer_says_what_a_browser_may_do_with_it(client):
    for path in ("/", "/api/state", "/api/images/0/thumb", "/api/nothing", "/static/nothing.js"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"]


def test_strangers_need_the_token_that_is_kept_hashed(folder):
    token, hashed = new_token()
    assert token not in hashed
    with opened(made_page(folder), token=hashed) as client:
        assert client.get("/api/state").status_code == 401
        assert client.get("/api/state", headers={"host": "10.1.2.3:8123"}).status_code == 401
        assert client.get("/api/state", headers={"host": "evil.example"}).status_code == 421
        assert client.get("/static/icon.svg").status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        assert client.get(f"/api/state?token={token}").status_code == 401  # only the front door takes it
        reply = client.get(f"/?token={token}")
        assert reply.status_code == 303 and reply.headers["location"] == "/"
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert client.get("/api/state").status_code == 200  # the cookie
        client.cookies.clear()
        assert client.get("/api/state", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_no_link_leads_out_of_the_folder(tmp_path):
    secret = tmp_path / "secret"
    make_folder(secret, 2)
    root = make_folder(tmp_path / "photos", 6)
    os.symlink(secret / "000.png", root / "out.png")
    os.symlink(secret, root / "outside")
    os.symlink(root / "001.png", root / "within.png")
    with opened(made_page(root, 7)) as client:
        names = [row["name"] for row in client.get("/api/images/details?ids=0,1,2,3,4,5,6").json()["images"]]
        assert "within.png" in names and not {"out.png", "outside/000.png"} & set(client.page.album.names)
        # a file that becomes a link while the page runs
        (root / "002.png").unlink()
        os.symlink(secret / "000.png", root / "002.png")
        place = client.page.album.names.index("002.png")
        for what in ("thumb", "picture"):
            assert client.get(f"/api/images/{place}/{what}").status_code == 422
    for path in ("/static/../session.py", "/static/..%2f..%2fsession.py", "/..%2fsession.py", "/static//etc/passwd"):
        with opened(made_page(root, 7)) as client:
            assert client.get(path).status_code == 404


def test_names_are_text(tmp_path):
    root = tmp_path / "photos"
    make_folder(root, 4)
    os.rename(root / "000.png", root / "<img src=x onerror=alert(1)>.png")
    with open(os.fsencode(root) + b"/\xff\xfe.png", "wb") as file:
        Image.new("RGB", (8, 8)).save(file, "PNG")
    with opened(made_page(root, 5)) as client:
        client.post("/api/labels", json={"ids": [0, 1, 2, 3, 4], "name": "'; DROP TABLE votes; -- & b"})
        reply = client.get("/api/images/details?ids=0,1,2,3,4")
        assert reply.headers["content-type"] == "application/json"
        assert "\ufffd\ufffd.png" in [image["name"] for image in reply.json()["images"]]
        for path in ("labels.csv", "labelstudio.json", "coco.json"):
            assert client.get(f"/api/export/{path}").status_code == 200
        assert client.post("/api/export/labels", json={}).json()["labels"] == 5


def test_uploads_are_bounded_and_decoded_where_they_may_do_harm(client, monkeypatch):
    for content, status in ((b"no picture", 422), (b"", 422), (b"x" * (decoder.MOST_BYTES + 1), 413)):
        reply = client.post("/api/search/upload", content=content, headers={"content-type": "image/png"})
        assert reply.status_code == status, reply.text

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8_000, 8_000, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    with pytest.raises(ImageError, match="over the limit"):
        decoder.decode(bomb)
    monkeypatch.setattr(decoding.sys, "executable", "/bin/false")
    decoding._end_helpers()
    decoding._idle.clear()
    with pytest.raises(ImageError, match="does not start"):
        decoder.decode(b"anything")
    assert client.get("/api/state").status_code == 200


def test_a_second_server_of_the_same_labels_is_refused(client):
    with pytest.raises(DatabaseError, match="another patchbag serve"):
        made_page(client.page.root)


def test_a_folder_that_cannot_be_written_to_says_where_labels_can_be_kept(folder, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(DatabaseError, match=r"cannot write labels to .*\.patchbag; keep them .* --db sqlite:///\w+"):
        made_page(folder)


@pytest.mark.parametrize(
    ("address", "shown"),
    [("labels.sqlite", "labels.sqlite"), ("mysql://me:secret@far/x", "mysql://far/x"), ("me:secret@far/x", "far/x")],
)
def test_an_address_that_is_none_of_a_database_says_what_one_looks_like(address, shown):
    with pytest.raises(DatabaseError, match=rf"given as sqlite:///FILE or postgresql://SERVER/NAME, got {shown}$"):
        Database(address)


def test_a_database_of_another_folder_is_refused_and_a_copy_of_its_own_is_not(folder, tmp_path):
    database = f"sqlite:///{tmp_path}/labels.sqlite"
    page = made_page(folder, database=database)
    page.album.change("Ann", "a label", page.album.class_named("beach")[1] + page.album.say("Ann", [(3, 0)]))
    page.stop()
    other = make_folder(tmp_path / "others", 70)
    for i in range(70):  # the same names
        Image.new("L", (9, 9), i).save(other / f"{i:03d}.png")
    with pytest.raises(DatabaseError, match="another folder: 0 of its 60 images are in"):
        made_page(other, 70, database=database)
    assert not (other / ".patchbag").exists()
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".patchbag"))
    folder.rename(tmp_path / "elsewhere")
    for root in (tmp_path / "elsewhere", copy):
        page = made_page(root, database=database)
        assert page.album.label[3] == 0 and not page.album.gone.any()
        page.stop()
