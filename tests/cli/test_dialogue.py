# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from patchbag.active.learner import ActiveLearner
from patchbag.active.pool_learner import PoolLearner
from patchbag.cli.dialogue import check_pool, guess, help_text, label_images, move_answered, parse_answer
from patchbag.collection import CollectionError, open_collection
from patchbag.collection.labels import LabelFile
from patchbag.similarity.graph.image_graph import ImageGraph


@pytest.fixture
def folder(tmp_path):
    """Two labelled cats, one labelled dog, five images without a label in two places."""
    names = ["cat/1.png", "cat/2.png", "dog/1.png", "unlabelled/1.png", "unlabelled/deep/2.png"]
    names += ["a.png", "b.png", "c.png"]
    for name in names:
        path = tmp_path / "pool" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(path)
    (tmp_path / "pool" / "notes.txt").write_text("not an image")
    return tmp_path / "pool"


def two_groups(n: int, seed: int = 0) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(n, 2)) + np.array([[3.0, 0.0]]) * (np.arange(n) % 2)[:, None]
    return np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(axis=2))


def written(path, answers) -> LabelFile:
    book = LabelFile(path)
    for image, label in answers.items():
        book.put(image, label)
    return book


class Person:
    """Answers in turn, then the end of the input; remembers what was shown."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.prompts, self.seen = list(answers), [], []

    def ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)

    def label(self, folder, book, **options) -> int:
        images = open_collection(folder, book)
        make = learner_of(two_groups(len(images)))
        return label_images(images, make, book, ask=self.ask, tell=self.seen.append, **options)


def learner_of(kernel):
    return lambda labels: ActiveLearner(random_state=0).fit(kernel, labels)


def asked(person: Person, root) -> list[str]:
    return [line.split()[0].removeprefix(f"{root}/") for line in person.seen if "without a label" in line]


def test_a_pool_needs_an_image_to_ask_for_and_another_to_compare_it_with(folder):
    images = open_collection(folder)
    with pytest.raises(CollectionError, match=r"every image has a label.*--simulate"):
        check_pool(images.labelled())
    with pytest.raises(CollectionError, match="a single image"):
        check_pool(images.unlabelled()[:1])


@pytest.mark.parametrize("name", ["labels.csv", "labels.json"])
def test_answers_are_kept_and_taken_up_again(folder, tmp_path, name):
    book = LabelFile.open(tmp_path / name)
    first = Person("cat", "2", "s", "q", "never reached")
    assert first.label(folder, book) == 2
    again = LabelFile.open(tmp_path / name)
    assert again.answers == book.answers and sorted(map(str, again.answers.values())) == ["None", "cat", "dog"]
    second = Person("1", "1")
    assert second.label(folder, again) == 2
    assert not set(asked(second, folder)) & set(asked(first, folder)[:3])
    assert len(LabelFile.open(tmp_path / name).answers) == 5
    assert Person("1").label(folder, LabelFile.open(tmp_path / name)) == 0
    assert not list(tmp_path.glob(".*partial"))


def test_nothing_is_moved_unless_asked_for(folder, tmp_path):
    before = sorted(str(p) for p in folder.rglob("*"))
    Person("cat", "cow").label(folder, LabelFile.open(tmp_path / "labels.csv"))
    assert sorted(str(p) for p in folder.rglob("*")) == before


def test_moved_images_lie_in_the_folder_of_their_class_and_replace_nothing(folder, tmp_path):
    book = LabelFile.open(tmp_path / "labels.csv")
    assert Person("cat", "cat", "cat", "cow", "cow").label(folder, book, move=True) == 5
    images = open_collection(folder)
    labels = images.labels.tolist()
    assert len(images) == 8 and None not in labels
    assert labels.count("cat") == 5 and labels.count("cow") == 2
    assert all(book.answers[name] == label for name, label in zip(images.names, labels) if name in book.answers)
    assert open_collection(folder, book).labels.tolist() == labels


def test_images_that_were_answered_before_are_moved_without_replacing_any(folder, tmp_path):
    answers = {"unlabelled/1.png": "cat", "a.png": "cow", "cat/2.png": "cat", "b.png": None}
    book = written(tmp_path / "labels.csv", answers)
    images = open_collection(folder, book)
    assert move_answered(images, book) == 2
    assert book.answers == {"cat/1-1.png": "cat", "cow/a.png": "cow", "cat/2.png": "cat", "b.png": None}
    assert LabelFile.open(book.path).answers == book.answers
    again = open_collection(folder, book)
    assert dict(zip(images.names, images.labels)) == dict(zip(again.names, again.labels))
    assert len(again) == 8 and move_answered(again, book) == 0


def test_a_label_that_can_be_no_folder_moves_nothing(folder, tmp_path):
    book = written(tmp_path / "labels.csv", {"a.png": "cow", "b.png": "../cow"})
    with pytest.raises(CollectionError, match=r"calls b.png '../cow', which cannot be the name of a folder"):
        move_answered(open_collection(folder, book), book)
    assert (folder / "a.png").exists() and not (folder / "cow").exists()


def test_a_move_that_fails_half_way_keeps_the_answers_with_their_images(folder, tmp_path, monkeypatch):
    book = written(tmp_path / "labels.csv", {"a.png": "cow", "b.png": "cow"})
    done, move = [], shutil.move

    def once(source, target):
        if done:
            raise OSError("disk full")
        done.append(move(source, target))

    monkeypatch.setattr(shutil, "move", once)
    with pytest.raises(OSError, match="disk full"):
        move_answered(open_collection(folder, book), book)
    assert LabelFile.open(book.path).answers == {"cow/a.png": "cow", "b.png": "cow"}
    assert open_collection(folder, book).labels.tolist().count("cow") == 2


def test_a_question_shows_the_image_the_guess_and_the_classes(folder, tmp_path):
    person = Person("what is this/that", "7", "", "Cat", "n", "cow", "q")
    assert person.label(folder, LabelFile.open(tmp_path / "labels.csv")) == 1
    text = "\n".join(person.seen)
    assert str(folder) in text and "1 cat   2 dog" in text and "1 cat   2 dog   3 cow" in text
    guesses = [line for line in person.seen if "guess" in line]
    assert len(guesses) == 2 and guesses[0].count("%") == 2
    assert (
        "cannot be the name of a class" in text
        and "no class number 7: the classes are 1 to 2" in text
        and help_text() in text
    )
    assert any("'Cat' is new and much like 'cat'" in prompt for prompt in person.prompts)


def test_a_guess_names_a_second_class_only_where_that_may_be_it():
    class Sure:
        classes_ = np.array(["cat", "cow", "dog"])

        def predict_proba(self):
            return np.array([[0.996, 0.001, 0.003], [0.6, 0.1, 0.3]])

    assert guess(Sure(), 0) == "cat 100 %"
    assert guess(Sure(), 1) == "cat 60 %, dog 30 %"


def test_a_cold_start_without_any_label_works(folder, tmp_path):
    for name in ("cat", "dog"):
        (folder / name).rename(folder / "unlabelled" / name)
    person = Person("x", "y", "x")
    assert person.label(folder, LabelFile.open(tmp_path / "l.csv")) == 3
    assert "no guess yet" in person.seen[1] and any("guess: " in line for line in person.seen)


@pytest.mark.parametrize("move", [False, True])
def test_undo_takes_back_the_last_answer_as_if_it_had_not_been_given(folder, tmp_path, move):
    def files():
        return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))

    before = files()
    book = LabelFile.open(tmp_path / "labels.csv")
    person = Person("u", "cta", "u", "s", "u", "q")
    assert person.label(folder, book, move=move) == 0
    assert "no answer of this run to undo" in "\n".join(person.seen)
    # the image is asked for again at once
    questions = asked(person, folder)
    assert len(questions) == 5 and questions[0] == questions[2] == questions[4]
    assert book.answers == {} == LabelFile.open(tmp_path / "labels.csv").answers
    assert files() == before
    assert "cta" not in person.seen[-1]


def test_after_an_undo_the_questions_are_those_of_a_run_without_the_mistake(folder, tmp_path):
    straight, detour = Person("cat", "dog", "s", "cat", "dog"), Person("cat", "cow", "u", "dog", "cow", "u", "s", "cat")
    detour.answers += ["dog"]
    books = [LabelFile.open(tmp_path / name) for name in ("a.csv", "b.csv")]
    given = [person.label(folder, book) for person, book in zip((straight, detour), books)]
    assert given == [4, 4]
    assert books[0].answers == books[1].answers
    assert [line for line in straight.seen if "guess" in line][-1] == [line for line in detour.seen if "guess" in line][
        -1
    ]


def test_a_class_that_is_called_like_a_command_gives_the_command_a_slash(folder, tmp_path):
    (folder / "dog").rename(folder / "s")
    book = LabelFile.open(tmp_path / "labels.csv")
    person = Person("s", "/s", "/q", "never reached")
    assert person.label(folder, book) == 1
    assert sorted(map(str, book.answers.values())) == ["None", "s"]
    assert person.prompts == ["label (/s to skip)> "] * 3
    assert "/s to skip, u to undo" in help_text({"s"}) and "/s" not in help_text()
    (folder / "s").rename(folder / "dog")
    usual = Person("/s", "s", "q")
    assert usual.label(folder, LabelFile.open(tmp_path / "more.csv")) == 0
    assert usual.prompts == ["label> "] * 3


def test_commands_are_known_by_their_words_too_and_a_question_mark_asks_what_they_are(folder, tmp_path):
    book = LabelFile.open(tmp_path / "labels.csv")
    person = Person("cat", "undo", "skip", "?", "quit", "never reached")
    assert person.label(folder, book) == 0
    assert list(book.answers.values()) == [None] and f"  {help_text()}" in person.seen
    (folder / "dog").rename(folder / "quit")  # a class that people have comes first
    assert Person("quit", "/quit").label(folder, LabelFile.open(tmp_path / "more.csv")) == 1


def test_rounds_end_the_loop(folder, tmp_path):
    assert Person(*["cat"] * 5).label(folder, LabelFile.open(tmp_path / "l.csv"), rounds=2) == 2


def test_the_person_is_told_when_predictions_have_settled(tmp_path):
    for i in range(30):
        path = tmp_path / "pool" / ("a" if i == 0 else "b" if i == 1 else ".") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(path)
    images = open_collection(tmp_path / "pool")
    truth = np.array([int(p.split("/")[-1][:-4]) % 2 for p in images.names])
    kernel = np.where(truth[:, None] == truth, 0.95, 0.0) + 0.05 * np.eye(30)
    seen: list[str] = []

    def ask(prompt: str) -> str:
        name = next(line for line in reversed(seen) if "without a label" in line).split()[0]
        return "ab"[int(name.split("/")[-1][:-4]) % 2]

    given = label_images(images, learner_of(kernel), LabelFile(tmp_path / "l.csv"), ask=ask, tell=seen.append)
    assert given == 28
    assert sum("is a good idea now" in line for line in seen) == 1
    seen.clear()
    for image in images.names:
        LabelFile(tmp_path / "l.csv").drop(image)
    images = open_collection(tmp_path / "pool")
    graph = ImageGraph.from_kernel(kernel)
    make = lambda labels: PoolLearner(random_state=0).fit(graph, labels)  # noqa: E731
    assert label_images(images, make, LabelFile(tmp_path / "m.csv"), ask=ask, tell=seen.append, rounds=10) == 10
    last = [line for line in seen if "without a label" in line][-1]
    assert "(19 without a label, about 0 % wrong, between " in last


@pytest.mark.parametrize(("name", "text"), [("l.csv", "image,label\r\na.png,cat\r\n"), ("l.json", '{"a.png": "cat"}')])
def test_a_file_of_labels_may_begin_with_a_byte_order_mark(tmp_path, name, text):
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert LabelFile.open(tmp_path / name).answers == {"a.png": "cat"}


def test_a_class_may_be_called_by_a_number():
    classes = ["7", "1"]
    assert parse_answer("1", classes, lambda _: True) == ("1", "")
    assert parse_answer("2", classes, lambda _: True) == ("2", "")  # a new class, not the second one
    assert parse_answer("2", classes, lambda _: False)[0] is None
    assert parse_answer("  7 ", classes, lambda _: True) == ("7", "")
    for bad in ("..", "../x", "a\\b", "unlabelled", "x\ty"):
        assert parse_answer(bad, classes, lambda _: True)[0] is None
