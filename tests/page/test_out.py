"""What goes out and comes in; the client."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from page.pages import N, truth
from patchbag.page import client as client_module
from patchbag.page import formats
from patchbag.page.client import PageClient, PageError

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "kind, file", [("csv", "labels.csv"), ("labelstudio", "labelstudio.json"), ("coco", "coco.json")]
)
def test_labels_go_out_and_come_back(taught, tmp_path, kind, file):
    sent = taught.get(f"/api/export/{file}")
    assert "attachment" in sent.headers["content-disposition"]
    before = taught.page.album.label.tolist()
    taught.post("/api/labels", json={"ids": list(range(N)), "label": None})
    assert taught.get("/api/state").json()["labelled"] == 0
    reply = taught.post(
        f"/api/import/{kind}", content=sent.content, headers={"content-type": "application/octet-stream"}
    )
    assert reply.json()["labels"] == 30 and reply.json()["unknown"] == 0
    assert taught.page.album.label.tolist() == before


def test_what_others_export_is_understood():
    tasks = [
        {
            "id": 1,
            "data": {"image": "/data/upload/3/0a1b2c3d-cat%201.jpg"},
            "annotations": [
                {"was_cancelled": True, "result": [{"value": {"choices": ["dog"]}}]},
                {"result": [{"type": "choices", "value": {"choices": ["cat"]}}]},
            ],
        },
        {
            "data": {"image": "/data/local-files/?d=sub/dog.png"},
            "annotations": [{"result": [{"value": {"choices": ["dog"]}}]}],
        },
        {"image": "s3://bucket/sub/bird.jpeg", "choice": "bird", "id": 4},
        {"data": {"image": "nobody/said.png"}, "annotations": []},
    ]
    found = formats.from_label_studio(json.dumps(tasks))
    assert found == [("cat 1.jpg", "cat"), ("sub/dog.png", "dog"), ("sub/bird.jpeg", "bird")]
    coco = {
        "images": [{"id": 7, "file_name": "a.jpg"}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"image_id": 7, "category_id": 1, "bbox": [0, 0, 1, 1]}],
    }
    assert formats.from_coco(json.dumps(coco)) == [("a.jpg", "cat")]
    assert formats.from_csv("file;class\na.jpg;cat\nb.jpg;\n") == [("a.jpg", "cat")]


@pytest.mark.parametrize("kind", ["csv", "labelstudio", "coco"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[[[", b'{"images": 3}', b'[{"data": 3}]', b"\xff\xfe", b'["x"]', b"null"]
)
def test_what_is_no_such_file_is_refused_and_changes_nothing(client, kind, content):
    reply = client.post(f"/api/import/{kind}", content=content, headers={"content-type": "application/octet-stream"})
    assert reply.status_code in (200, 400), reply.text
    assert not client.page.album.votes and not client.page.album.classes


def test_labels_of_images_that_are_elsewhere_are_counted(client):
    content = b"image,label\n001.png,beach\nelsewhere.png,coast\n"
    reply = client.post("/api/import/csv", content=content, headers={"content-type": "text/csv"}).json()
    assert reply["labels"] == 1 and reply["unknown"] == 1


def test_all_images_go_out_with_what_people_or_the_model_say(taught):
    image, label, by, probability = zip(*csv.reader(taught.get("/api/export/predictions.csv").text.splitlines()))
    assert (image[0], label[0], by[0], probability[0]) == ("image", "label", "by", "probability")
    assert len(image) == 1 + N and label[1:] == tuple(truth(i) for i in range(N))
    assert by[1:] == (*30 * ["person"], *30 * ["model"])
    assert not any(probability[1:31]) and all(0.3 < float(p) <= 1 for p in probability[31:])


def test_labels_csv_is_written_beside_the_images_and_kept_up(taught):
    (taught.page.root / "labels.csv").write_text("image,label,note\n059.png,mine,by hand\n")
    assert taught.post("/api/export/labels", json={}).json()["labels"] == 30
    text = (taught.page.root / "labels.csv").read_text()
    assert "059.png,mine,by hand" in text and "000.png,beach," in text


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_images_go_into_folders_by_class_and_back(taught, how):
    root = taught.page.root
    names = sorted(path.name for path in root.glob("*.png"))
    answer = taught.post("/api/export/folder", json={"how": how}).json()
    place = root if how == "move" else root / answer["path"]
    assert answer["files"] == 30 and (place / "coast" / "001.png").is_file()
    assert (root / "001.png").exists() == (how != "move")
    assert taught.get("/api/images/1/picture").status_code == 200
    taught.post("/api/undo", json={})
    assert sorted(path.name for path in root.glob("*.png")) == names
    assert not (place / "coast").exists()


@pytest.mark.parametrize("how", ["copy", "move"])
def test_a_link_that_leads_nowhere_keeps_no_other_image_from_its_folder(taught, how):
    root = taught.page.root
    (root / "001.png").unlink()
    (root / "001.png").symlink_to("nowhere.png")
    answer = taught.post("/api/export/folder", json={"how": how}).json()
    assert answer["files"] == 29 and (root / "001.png").is_symlink()


def test_a_folder_that_cannot_be_written_is_a_sentence(taught):
    (taught.page.root / ".patchbag" / "out").write_text("a file where a folder should be")
    reply = taught.post("/api/export/folder", json={"how": "copy"})
    assert reply.status_code == 500 and "out" in reply.json()["detail"]


def test_the_client_is_short_and_says_what_was_refused(client):
    assert len(Path(client_module.__file__).read_text().splitlines()) <= 100
    page = PageClient(f"http://127.0.0.1:{client.port}", person="Zoë")
    assert page.wait()["me"] == "Zoë"
    page.label([0, 3], "beach")
    assert [image["label"] for image in page.details([0, 1, 3])] == [0, None, 0]
    assert page.images(filter="labelled") == [0, 3] and len(page.search(0, 3)) == 3
    page.undo()
    assert page.images(filter="labelled") == []
    with pytest.raises(PageError, match="404: there is no image 999"):
        page.label([999], "beach")


def test_the_api_describes_itself_and_the_document_names_every_route(client):
    paths = client.get("/api/openapi.json").json()["paths"]
    document = (HERE.parents[1] / "docs" / "page.md").read_text()
    missing = [path for path in paths if re.sub(r"\{\w+\}", "{}", path) not in re.sub(r"\{\w+\}", "{}", document)]
    assert len(paths) > 30 and not missing, missing


def test_every_route_that_answers_json_says_what_it_answers(client):
    paths = client.get("/api/openapi.json").json()["paths"]
    described, silent = 0, []
    for path, methods in paths.items():
        for method, said in methods.items():
            (reply,) = (reply for status, reply in said["responses"].items() if status.startswith("2"))
            content = reply.get("content", {}).get("application/json")
            described += content is not None and "$ref" in content["schema"]
            if content is not None and "$ref" not in content["schema"]:
                silent.append(f"{method} {path}")
            assert said["responses"]["4XX"]["content"]["application/json"]["schema"]["$ref"].endswith("/Problem")
    assert described == 40 and not silent, (described, silent)
