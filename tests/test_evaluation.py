from __future__ import annotations

import re

import numpy as np
import pytest

from patchbag import Categorizer
from patchbag.datasets import ImageFolder, open_folder
from patchbag.evaluation import Evaluation, confident_mistakes, evaluate, reliability_table, score_split
from patchbag.report import render, write_report


@pytest.fixture
def test_images():
    return ImageFolder(["a1", "a2", "a3", "b1"], np.array(["a", "a", "a", "b"]))


def test_the_figures_of_a_split_are_those_counted_by_hand(test_images):
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    split, right = score_split(test_images, ["a", "b"], p, {}, 0, 10)
    assert right.tolist() == [True, False, True, True]
    assert split.accuracy == pytest.approx((2 / 3 + 1) / 2)
    assert split.per_class == {"a": pytest.approx(2 / 3), "b": 1.0}
    assert split.confusion == [[2, 1], [0, 1]]
    assert split.log_loss == pytest.approx(-np.log([0.9, 0.2, 0.6, 0.7]).mean())
    # groups by stated probability: 0.9 right, 0.8 wrong, 0.6 right, 0.7 right
    assert split.calibration_error == pytest.approx((0.1 + 0.8 + 0.4 + 0.3) / 4)


def evaluation(test_images, *names: str) -> Evaluation:
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    images = ImageFolder(test_images.paths, np.where(test_images.labels == "a", names[0], names[1]))
    split, _ = score_split(images, list(names), p, {"train x": 1.0, "test x": 2.0, "total": 3.0}, 0, 8)
    result = Evaluation("words", list(names), {}, splits=[split])
    result.mistakes = confident_mistakes(images, list(names), p, 0)
    result.reliability = reliability_table(p.max(axis=1), np.ones(4))
    return result


def test_describing_the_images_counts_in_every_place_that_gives_times(test_images):
    result = evaluation(test_images, "a", "b")
    assert result.seconds() == {"train x": 1.0, "test x": 2.0, "total": 3.0}
    result.describing = 1.0
    assert result.seconds() == {"describe images": 1.0, "train x": 1.0, "test x": 2.0, "total": 4.0}
    assert result.to_json()["seconds"] == result.seconds()
    assert result.to_json()["images_per_second"] == result.images_per_second() == 12 / 4
    result.splits *= 5  # described once
    assert result.images_per_second() == 12 / 4
    result.splits = result.splits[:1]
    cells = re.sub("<[^>]+>", " ", render(result, "t", []).split("Where the time went")[1])
    words = " ".join(cells.split())
    assert words.startswith(
        "describe images 1.00 s 25 % train x 1.00 s 25 % test x 2.00 s 50 % total 4.00 s 3 images/s"
    )


def test_names_that_are_no_text_reach_the_report_by_their_codes(test_images, tmp_path):
    path = write_report(evaluation(test_images, "a", "caf\udce9"), tmp_path / "r.html", "caf\udce9")
    page = path.read_text(encoding="utf-8")
    assert "<h1>caf\\udce9</h1>" in page and page.endswith("</html>")


def test_mistakes_are_listed_surest_first(test_images):
    p = np.array([[0.4, 0.6], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    mistakes = confident_mistakes(test_images, ["a", "b"], p, 0)
    assert [m["image"] for m in mistakes] == ["a2", "a1"]
    assert mistakes[0]["probability"] == 0.8 and mistakes[0]["label"] == "a" and mistakes[0]["predicted"] == "b"


def test_a_reliability_table_averages_within_groups():
    table = reliability_table(np.array([0.91, 0.95, 1.0, 0.55]), np.array([1, 0, 1, 1]))
    assert table[-1] == {
        "confidence": pytest.approx(np.mean([0.91, 0.95, 1.0])),
        "accuracy": pytest.approx(2 / 3),
        "share": 0.75,
    }


def test_the_protocol_runs_reproducibly_and_reports(picture_folder):
    folder = open_folder(picture_folder)
    small = {"recipe__statistics__mixture__n_components": 3, "recipe__statistics__projection__n_components": 8}
    categorizer = Categorizer("words").set_params(**small)
    result = evaluate(folder, categorizer, train_per_class=5, splits=2, seed=4)
    again = evaluate(folder, categorizer, train_per_class=5, splits=2, seed=4)
    assert [s.accuracy for s in result.splits] == [s.accuracy for s in again.splits]
    assert [s.seed for s in result.splits] == [4, 5]
    assert (result.splits[0].n_train, result.splits[0].n_test) == (15, 21)
    data = result.to_json()
    accuracies = [s["accuracy"] for s in data["splits"]]
    assert data["mean_accuracy"] == pytest.approx(np.mean(accuracies))
    assert data["std_accuracy"] == pytest.approx(np.std(accuracies, ddof=1))
    assert data["parameters"]["recipe__statistics__mixture__n_components"] == 3
    assert np.sum(data["confusion"]) == 42
    assert data["seconds"]["train statistics"] > 0


def test_the_report_is_one_safe_page(picture_folder):
    folder = open_folder(picture_folder)
    odd = np.where(folder.labels == "bars", "<script>bars</script>", folder.labels)
    small = {"recipe__statistics__mixture__n_components": 3, "recipe__statistics__projection__n_components": 8}
    categorizer = Categorizer("words").set_params(**small)
    result = evaluate(ImageFolder(folder.paths, odd), categorizer, train_per_class=2, splits=1)
    result.mistakes = confident_mistakes(
        ImageFolder(folder.paths, odd), result.classes, np.tile([0.6, 0.3, 0.1], (36, 1)), 0
    )
    page = render(result, "a & b", [])
    assert "<script" not in page and "&lt;script&gt;bars" in page and "a &amp; b" in page
    assert f"{100 * result.mean_accuracy:.1f}" in page
    assert page.count("data:image/jpeg;base64,") == 24
    assert not re.search(r"(src|href)=\"(?!data:)", page)
