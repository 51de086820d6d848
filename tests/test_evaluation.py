from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from patchbag import Categorizer, MultilabelSVM, PerClassSplit, compare, evaluate, open_collection
from patchbag.evaluation import (
    Evaluation,
    confident_mistakes,
    score_classes,
    score_rankings,
)
from patchbag.memory import figure_key
from patchbag.metrics import reliability_table
from patchbag.report import render, write_report

TRUTH = np.array(["a", "a", "a", "b"])
NAMES = ["a1", "a2", "a3", "b1"]
STATED = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
SMALL = {"recipe__statistics__mixture__n_components": 3, "recipe__statistics__projection__n_components": 8}


@pytest.fixture
def points():
    y = np.repeat(["a", "b", "c"], 20)
    centres = np.eye(3)[np.repeat([0, 1, 2], 20)]
    return 3 * centres + np.random.default_rng(0).normal(size=(60, 3)), y


def test_the_figures_of_a_split_are_those_counted_by_hand():
    split = score_classes(TRUTH, STATED, ["a", "b"], 10, {})
    assert split.accuracy == pytest.approx((2 / 3 + 1) / 2)
    assert split.per_class == {"a": pytest.approx(2 / 3), "b": 1.0}
    assert split.confusion == [[2, 1], [0, 1]]
    assert split.log_loss == pytest.approx(-np.log([0.9, 0.2, 0.6, 0.7]).mean())
    # groups by stated probability: 0.9 right, 0.8 wrong, 0.6 right, 0.7 right
    assert split.calibration_error == pytest.approx((0.1 + 0.8 + 0.4 + 0.3) / 4)
    plain = score_classes(TRUTH, np.array(["a", "b", "a", "b"]), ["a", "b"], 10, {})
    assert plain.accuracy == split.accuracy and np.isnan(plain.log_loss)


def evaluation(*names: str) -> Evaluation:
    labels = np.where(TRUTH == "a", names[0], names[1])
    split = score_classes(labels, STATED, list(names), 8, {"train x": 1.0, "test x": 2.0})
    mistakes = confident_mistakes(labels, np.array(names), STATED, NAMES)
    result = Evaluation("words", list(names), {})
    result.add(split, mistakes, np.stack([STATED.max(axis=1), np.ones(4), np.arange(4)], axis=1))
    return result


def test_describing_the_images_counts_in_every_place_that_gives_times():
    result = evaluation("a", "b")
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


def test_names_that_are_no_text_reach_the_report_by_their_codes(tmp_path):
    path = write_report(evaluation("a", "caf\udce9"), tmp_path / "r.html", "caf\udce9")
    page = path.read_text(encoding="utf-8")
    assert "<h1>caf\\udce9</h1>" in page and page.endswith("</html>")


def test_mistakes_are_listed_surest_first():
    p = np.array([[0.4, 0.6], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    mistakes = confident_mistakes(TRUTH, np.array(["a", "b"]), p, NAMES)
    assert [m["image"] for m in mistakes] == ["a2", "a1"]
    assert mistakes[0]["probability"] == 0.8 and mistakes[0]["label"] == "a" and mistakes[0]["predicted"] == "b"


def test_a_reliability_table_averages_within_groups():
    table = reliability_table(np.array([0.91, 0.95, 1.0, 0.55]), np.array([1, 0, 1, 1]))
    assert len(table) == 2
    assert table[-1]["confidence"] == pytest.approx(np.mean([0.91, 0.95, 1.0])) and table[-1]["share"] == 0.75
    assert table[-1]["accuracy"] == pytest.approx(2 / 3)


def test_groups_of_few_images_are_joined_and_images_of_several_splits_count_once():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(size=300)
    image = np.tile(np.arange(30), 10)
    table = reliability_table(confidence, rng.uniform(size=300) < confidence, image, least=10)
    assert sum(row["share"] for row in table) == pytest.approx(1)
    edges = [row["confidence"] for row in table]
    assert edges == sorted(edges) and len(table) > 5
    (whole,) = reliability_table(confidence[:9], np.ones(9), image[:9], least=10)
    assert (whole["share"], whole["accuracy"]) == (1, 1)
    # Wilson's interval solves |p - share| = z sqrt(p (1 - p) / n), here of 30 images, though there are 300 answers
    (row,) = reliability_table(np.full(300, 0.95), image < 24, image, least=10)
    for p in (row["low"], row["high"]):
        assert abs(p - 0.8) == pytest.approx(1.96 * np.sqrt(p * (1 - p) / 30))


def test_folds_may_be_a_number_and_a_model_must_be_one(points):
    X, y = points
    assert len(evaluate(LogisticRegression(), X, y, cv=3).splits) == 3
    with pytest.raises(ValueError, match=r"expected a model, got 'words'; that of a recipe is Categorizer\('words'\)"):
        evaluate("words", X, y, cv=3)


@pytest.mark.parametrize(("shorter", "message"), [(1, "inconsistent numbers of samples"), (0, "has no label")])
def test_labels_that_do_not_fit_the_images_are_an_error(points, shorter, message):
    X, labels = points
    wrong = labels[shorter:] if shorter else [None, *labels[1:]]
    with pytest.raises(ValueError, match=message):
        evaluate(LogisticRegression(), X, wrong, cv=2)


def test_a_report_says_no_more_of_probabilities_than_there_are_images_for():
    result = evaluation("a", "b")
    page = render(result, "t", [])
    assert "How sure is it?" in page and "100 test images are needed" in page and "calibration error" not in page
    result.add(result.splits[0], [], np.stack([np.full(100, 0.8), np.arange(100) < 70, np.arange(100)], axis=1))
    assert "<b>8.7 %</b><span>calibration error" in render(result, "t", [])
    result.reliability, result.confidence = [], []
    assert "How sure is it?" not in render(result, "t", []) and "calibration error" not in render(result, "t", [])


def test_the_protocol_runs_reproducibly_and_reports(picture_folder):
    collection = open_collection(picture_folder)
    labels = collection.labels.astype(str)
    categorizer = Categorizer("words").set_params(**SMALL)
    cv = PerClassSplit(5, n_splits=2, random_state=4)
    result = evaluate(categorizer, collection.paths, labels, cv=cv, seed=4)
    described = collection.describe(categorizer.pipeline()["features"]).bags
    again = evaluate(categorizer, described, labels, cv=cv, seed=4)
    assert [s.accuracy for s in result.splits] == [s.accuracy for s in again.splits]
    assert [s.seed for s in result.splits] == [4, 5]
    assert (result.splits[0].n_train, result.splits[0].n_test) == (15, 21)
    data = result.to_json()
    accuracies = [s["accuracy"] for s in data["splits"]]
    assert data["mean_accuracy"] == pytest.approx(np.mean(accuracies))
    assert data["std_accuracy"] == pytest.approx(np.std(accuracies, ddof=1))
    assert data["parameters"]["recipe__statistics__mixture__n_components"] == 3
    assert np.sum(data["confusion"]) == 42
    assert data["seconds"]["train statistics"] > 0 and data["seconds"]["test classifier"] > 0


def test_the_report_shows_the_images_that_vote_and_those_that_decided_on_mistakes(picture_folder):
    collection = open_collection(picture_folder)
    paths, labels = [str(p) for p in collection.paths], collection.labels.astype(str)
    labels[:3], labels[-3:] = labels[-3:].copy(), labels[:3].copy()  # mistakes to explain
    model = Categorizer("mlnn-gist").set_params(recipe__projection__n_components=4)
    result = evaluate(model, paths, labels, cv=PerClassSplit(8, n_splits=1, random_state=0), names=paths)
    known, kept = dict(zip(paths, labels)), result.splits[0].prototypes
    assert {k["label"] for k in kept} == set(labels) and all(known[k["image"]] == k["label"] for k in kept)
    voters = result.mistakes[0]["voters"]
    assert voters[0]["label"] == result.mistakes[0]["predicted"] and all(
        known[v["image"]] == v["label"] for v in voters
    )
    page = render(result, "t", [])
    assert "The images that vote" in page and page.count('<div class="kept">') == len(set(labels))
    assert 'class="voters"' in page and f"{100 * voters[0]['vote']:+.0f} %" in page


def test_a_split_is_what_training_and_testing_by_hand_gives(picture_folder):
    collection = open_collection(picture_folder)
    bags, labels = collection.describe(Categorizer("words").pipeline()["features"]).bags, collection.labels.astype(str)
    cv = PerClassSplit(5, n_splits=1, random_state=2)
    ((train, test),) = cv.split(labels, labels)
    model = Categorizer("words", random_state=7).set_params(**SMALL).fit(bags[train], labels[train])
    stated = model.predict_proba(bags[test])
    result = evaluate(Categorizer("words").set_params(**SMALL), bags, labels, cv=cv, seed=7)
    by_hand = score_classes(labels[test], stated, model.classes_.tolist(), len(train), {})
    assert result.splits[0].accuracy == by_hand.accuracy and result.splits[0].log_loss == by_hand.log_loss


def test_models_are_compared_on_the_same_splits_and_figures_of_a_journal_are_not_found_again(points):
    X, y = points
    models = {"weak": LogisticRegression(C=1e-4), "strong": LogisticRegression(C=10.0)}
    journal: dict = {}
    found = compare(models, X, y, cv=PerClassSplit(5, n_splits=3), journal=journal)
    assert len(journal) == 6 and found["strong"].mean_accuracy > 0.8
    told: list[str] = []
    again = compare(models, X, y, cv=PerClassSplit(5, n_splits=3), journal=dict(journal), progress=told.append)
    assert [s.accuracy for s in again["weak"].splits] == [s.accuracy for s in found["weak"].splits]
    changed = X.copy()
    changed[0, 0] += 1
    compare(models, changed, y, cv=PerClassSplit(5, n_splits=3), journal=journal)
    assert len(journal) == 12


def test_figures_depend_on_the_code_that_made_them(monkeypatch):
    before = figure_key(LogisticRegression(), "data")
    assert before == figure_key(LogisticRegression(), "data") != figure_key(LogisticRegression(C=2.0), "data")
    monkeypatch.setattr("patchbag.memory.code_digest", lambda: "another")
    assert figure_key(LogisticRegression(), "data") != before


def test_kernels_between_all_images_are_cut_in_rows_and_columns(points):
    X, y = points
    cv = PerClassSplit(5, n_splits=2)
    kernel = evaluate(SVC(kernel="precomputed"), X @ X.T, y, cv=cv, probabilities=False)
    linear = evaluate(SVC(kernel="linear"), X, y, cv=cv, probabilities=False)
    assert [s.accuracy for s in kernel.splits] == [s.accuracy for s in linear.splits]


def test_several_labels_per_image_are_scored_by_average_precision(points):
    X, y = points
    truth = np.stack([np.where(y == "a", 1, -1), np.where(y != "c", 1, -1)], axis=1)
    truth[0, 0] = 0
    split = [(np.arange(0, 60, 2), np.arange(1, 60, 2))]
    result = evaluate(MultilabelSVM(1.0), X, truth, cv=split)
    assert result.mean_accuracy > 0.9 and list(result.splits[0].per_class) == ["0", "1"]
    perfect = score_rankings(truth, truth.astype(float), 0, {})
    assert perfect.accuracy == 1.0


def test_a_matrix_of_few_classes_fits_a_phone_and_room_is_left_for_long_names():
    from patchbag.report import confusion_svg, name_room

    few = SimpleNamespace(classes=["bus", "beach", "rose"], confusion=np.eye(3))
    least = int(confusion_svg(few).split("min-width:")[1].split("px")[0])
    assert least < 300
    assert name_room(["a"]) == 60 < name_room(["a" * 14]) < name_room(["a" * 90]) == 150


def test_the_report_is_one_safe_page(picture_folder):
    collection = open_collection(picture_folder)
    odd = np.where(collection.labels == "bars", "<script>bars</script>", collection.labels).astype(str)
    categorizer = Categorizer("words").set_params(**SMALL)
    result = evaluate(categorizer, collection.paths, odd, cv=PerClassSplit(2, n_splits=1), names=collection.paths)
    stated = np.tile([0.6, 0.3, 0.1], (36, 1))
    result.mistakes = confident_mistakes(odd, np.unique(odd), stated, collection.paths)
    page = render(result, "a & b", [])
    assert "<script" not in page and "&lt;script&gt;bars" in page and "a &amp; b" in page
    assert f"{100 * result.mean_accuracy:.1f}" in page
    assert page.count("data:image/jpeg;base64,") == 24
    assert not re.search(r"(src|href)=\"(?!data:)", page)
