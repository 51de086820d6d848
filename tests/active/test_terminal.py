from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC

from patchbag.active.folder import LabelFile, open_partly_labelled, restore
from patchbag.active.terminal import (
    HELP,
    label_images,
    learning_curves,
    parse_answer,
    pool_kernel,
    summarise,
    write_curves,
)
from patchbag.datasets import FolderError
from patchbag.similarity.union import InnerProductKernel, KernelUnion


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
        images = open_partly_labelled(folder)
        return label_images(images, two_groups(len(images)), book, ask=self.ask, tell=self.seen.append, **options)


def asked(person: Person, root) -> list[str]:
    return [line.split()[0].removeprefix(f"{root}/") for line in person.seen if "without a label" in line]


def test_images_in_class_folders_have_labels_and_the_others_have_none(folder):
    images = open_partly_labelled(folder)
    labels = dict(zip(images.paths, images.labels))
    assert labels.pop("cat/2.png") == labels.pop("cat/1.png") == "cat" and labels.pop("dog/1.png") == "dog"
    assert set(labels) == {"unlabelled/1.png", "unlabelled/deep/2.png", "a.png", "b.png", "c.png"}
    assert set(labels.values()) == {None}


def test_folders_without_images_pool_or_classes_are_clear_errors(folder, tmp_path):
    with pytest.raises(FolderError, match="there is no folder"):
        open_partly_labelled(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FolderError, match="has no images"):
        open_partly_labelled(tmp_path / "empty")
    images = open_partly_labelled(folder)
    with pytest.raises(FolderError, match=r"every image has a label.*--simulate"):
        images.labelled().with_pool()
    with pytest.raises(FolderError, match="a single image"):
        images.without(set(range(7))).with_pool()
    with pytest.raises(FolderError, match="of 2 images all have the label 'cat'"):
        images.without(set(range(2, 8))).labelled()
    with pytest.raises(FolderError, match="none has a label"):
        images.without({0, 1, 2}).labelled()


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
    images = open_partly_labelled(folder)
    assert len(images) == 8 and None not in images.labels
    assert images.labels.count("cat") == 5 and images.labels.count("cow") == 2
    assert all(book.answers[p] == label for p, label in zip(images.paths, images.labels) if p in book.answers)
    assert restore(images, book) == []


def test_a_question_shows_the_image_the_guess_and_the_classes(folder, tmp_path):
    person = Person("what is this/that", "7", "", "Cat", "n", "cow", "q")
    assert person.label(folder, LabelFile.open(tmp_path / "labels.csv")) == 1
    text = "\n".join(person.seen)
    assert str(folder) in text and "1 cat   2 dog" in text and "1 cat   2 dog   3 cow" in text
    guesses = [line for line in person.seen if "guess" in line]
    assert len(guesses) == 2 and guesses[0].count("%") == 2
    assert (
        "cannot be the name of a class" in text and "no class number 7: the classes are 1 to 2" in text and HELP in text
    )
    assert any("'Cat' is new and much like 'cat'" in prompt for prompt in person.prompts)


def test_a_cold_start_without_any_label_works(folder, tmp_path):
    for name in ("cat", "dog"):
        (folder / name).rename(folder / "unlabelled" / name)
    person = Person("x", "y", "x")
    assert person.label(folder, LabelFile.open(tmp_path / "l.csv"), seed=1) == 3
    assert "no guess yet" in person.seen[1] and any("guess: " in line for line in person.seen)


def test_rounds_end_the_loop(folder, tmp_path):
    assert Person(*["cat"] * 5).label(folder, LabelFile.open(tmp_path / "l.csv"), rounds=2) == 2


def test_the_person_is_told_when_predictions_have_settled(tmp_path):
    for i in range(30):
        path = tmp_path / "pool" / ("a" if i == 0 else "b" if i == 1 else ".") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(path)
    images = open_partly_labelled(tmp_path / "pool")
    truth = np.array([int(p.split("/")[-1][:-4]) % 2 for p in images.paths])
    kernel = np.where(truth[:, None] == truth, 0.95, 0.0) + 0.05 * np.eye(30)
    seen: list[str] = []

    def ask(prompt: str) -> str:
        name = next(line for line in reversed(seen) if "without a label" in line).split()[0]
        return "ab"[int(name.split("/")[-1][:-4]) % 2]

    given = label_images(images, kernel, LabelFile(tmp_path / "l.csv"), ask=ask, tell=seen.append)
    assert given == 28
    assert sum("is a good idea now" in line for line in seen) == 1


def test_answers_that_contradict_the_folder_or_are_no_labels_are_clear_errors(folder, tmp_path):
    images = open_partly_labelled(folder)
    with pytest.raises(FolderError, match=r"lies in the folder 'cat' but .* calls it 'dog'"):
        restore(images, LabelFile(tmp_path / "l.csv", {"cat/1.png": "dog"}))
    for name, text in (("l.csv", "a,b\n1,2\n"), ("l.json", "[1, 2]"), ("m.json", "{")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=f"{name} is not a file of labels"):
            LabelFile.open(tmp_path / name)


def test_a_class_may_be_called_by_a_number():
    classes = ["7", "1"]
    assert parse_answer("1", classes, lambda _: True) == ("1", "")
    assert parse_answer("2", classes, lambda _: True) == ("1", "")
    assert parse_answer("  7 ", classes, lambda _: True) == ("7", "")
    for bad in ("..", "../x", "a\\b", "unlabelled", "x\ty"):
        assert parse_answer(bad, classes, lambda _: True)[0] is None


# --- the kernel of a pool ----------------------------------------------------------------------------------------


def test_the_kernel_of_a_recipe_is_its_kernel_or_the_inner_products_of_its_vectors():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 5))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    rows = Pipeline([("similarity", InnerProductKernel()), ("classifier", SVC())])
    assert np.allclose(pool_kernel(rows, X), unit @ unit.T)
    centred = X - X.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    vectors = Pipeline([("encoding", PCA(5, random_state=0)), ("classifier", SVC())])
    assert np.allclose(pool_kernel(vectors, X), centred @ centred.T)
    with pytest.raises(ValueError, match="give vectors or kernels"):
        pool_kernel(Pipeline([("classifier", SVC())]), list(X))


def test_labels_weigh_several_kernels_by_their_evidence():
    rng = np.random.default_rng(5)
    truth = np.arange(40) % 2
    good = np.where(truth[:, None] == truth, 0.9, 0.0) + 0.1 * np.eye(40)
    noise = rng.normal(size=(40, 40))
    noise = noise @ noise.T

    class Fixed(InnerProductKernel):
        def __init__(self, which: int = 0) -> None:
            super().__init__()
            self.which = which

        def fit_transform(self, X, y=None):
            return (good, noise)[self.which]

    union = KernelUnion([("good", Fixed(0)), ("noise", Fixed(1))])
    pipeline = Pipeline([("kernels", union), ("classifier", SVC())])
    images = list(range(40))
    equal = pool_kernel(pipeline, images)
    assert np.allclose(equal, (good / np.trace(good) + noise / np.trace(noise)) * 20)
    few = [str(t) if i < 12 else None for i, t in enumerate(truth)]
    weighed = pool_kernel(pipeline, images, few)
    assert np.allclose(np.trace(weighed), 40)
    assert np.abs(weighed - good).max() < 0.1 < np.abs(equal - good).max()


# --- the simulation ----------------------------------------------------------------------------------------------


def test_curves_compare_the_criterion_with_random_choice_and_repeat(tmp_path):
    # random choice hardly meets the rare class
    rare = np.repeat(["few", "many"], [30, 270])
    points = np.random.default_rng(2).normal(size=(300, 2)) + 2.0 * (rare == "few")[:, None]
    kernel = np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(axis=2))
    curves, again = (learning_curves(kernel, rare, rounds=30, runs=4, seed=1) for _ in range(2))
    assert list(curves.scores) == ["uncertainty", "random"] and curves.n_labels[[0, -1]].tolist() == [2, 32]
    assert all(np.array_equal(curves.scores[k], again.scores[k]) for k in curves.scores)
    assert curves.mean("uncertainty")[-1] > curves.mean("random")[-1]
    assert f"{100 * curves.mean('random')[-1]:.1f}" in summarise(curves)
    plot, data = write_curves(curves, tmp_path / "deep" / "curve", "title")
    assert plot.read_bytes().startswith(b"\x89PNG")
    written = json.loads(data.read_text())
    assert written["curves"]["random"]["mean"] == curves.mean("random").tolist()
    assert written["curves"]["uncertainty"]["standard_error"] == curves.standard_error("uncertainty").tolist()


def test_rounds_beyond_the_pool_are_cut_and_random_alone_is_one_curve():
    curves = learning_curves(two_groups(12), list("ab" * 6), criterion="random", rounds=500, runs=1)
    assert list(curves.scores) == ["random"] and curves.n_labels[-1] == 8
    assert summarise(curves).startswith("random")


def test_too_little_to_simulate_is_a_clear_error():
    with pytest.raises(ValueError, match="all 5 images are of the class x"):
        learning_curves(np.eye(5), ["x"] * 5)
    with pytest.raises(ValueError, match="class 'b' has 2 images; a simulation needs 3"):
        learning_curves(np.eye(6), list("aaaabb"))
