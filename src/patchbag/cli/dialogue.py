# SPDX-License-Identifier: BSD-3-Clause
"""Active learning in the terminal: which image to label next, asked until the person has had enough.

The pool is a partly labelled collection.  Answers go to a file of labels after every one of them, so that a run can be
stopped at any time and taken up again; images that were skipped are not asked for again.  Images are moved
into the folder of their class only on request.

``label_images`` is the loop; it reads and writes through the functions it is given.  A command is a letter or its
word, or either after a slash where a class has that name.  The last answers can be taken back one by one: the file of
labels, the place of the image and the learner are then as they were before.
"""

import contextlib
import difflib
import os
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.active.pool_learner import PoolLearner
from patchbag.cli.files import free_path
from patchbag.collection import Collection, CollectionError
from patchbag.collection.folder import UNLABELLED, is_class_name
from patchbag.collection.labels import LABEL_FILES, LabelFile, label_of_folder

SKIP, QUIT, UNDO = "s", "q", "u"
COMMANDS = {SKIP: "skip", UNDO: "undo the last answer", QUIT: "quit"}


def spelt(command: str, classes: Iterable[str]) -> str:
    """How a command is typed: with a slash before it where a class has the same name."""
    return f"/{command}" if command in classes else command


def help_text(classes: Iterable[str] = ()) -> str:
    """What can be typed when these classes are known."""
    commands = ", ".join(f"{spelt(command, classes)} to {what}" for command, what in COMMANDS.items())
    return f"type a class, its number, or a new class; {commands}"


def prompt(classes: Iterable[str]) -> str:
    """The prompt; it names the commands that need a slash."""
    unusual = ", ".join(
        f"{spelt(command, classes)} to {what}" for command, what in COMMANDS.items() if command in classes
    )
    return f"label ({unusual})> " if unusual else "label> "


def parse_command(answer: str, classes: Iterable[str]) -> str | None:
    """The command that an answer is, by its letter or its word, or None."""
    for command, what in COMMANDS.items():
        for name in (command, what.split()[0]):
            if answer in (spelt(name, classes), f"/{name}"):
                return command
    return None


def parse_answer(answer: str, classes: list[str], confirm: Callable[[str], bool]) -> tuple[str | None, str]:
    """The class that an answer means, or None and what is wrong with it.

    A class's own name comes before its number, so that classes may be called "1" and "2".
    """
    answer = answer.strip()
    if answer in classes:
        return answer, ""
    if answer in ("", "?"):
        return None, help_text(classes)
    numbers = any(name.isdecimal() for name in classes)  # are names here, not places in the list
    if answer.isdecimal() and numbers and confirm(f"open a new class {answer!r}?"):
        return answer, ""
    if answer.isdecimal() and not numbers and 1 <= int(answer) <= len(classes):
        return classes[int(answer) - 1], ""
    if answer.isdecimal():
        known = f"the classes are 1 to {len(classes)}" if classes else "there are no classes yet"
        return None, f"there is no class number {answer}: {known}; type a name for a new one"
    if not is_class_name(answer):
        return None, f"{answer!r} cannot be the name of a class, which may become a folder; use letters and digits"
    by_case = {name.lower(): name for name in classes}
    close = difflib.get_close_matches(answer.lower(), by_case, n=1, cutoff=0.75)
    if close and not confirm(f"{answer!r} is new and much like {by_case[close[0]]!r}; open a new class?"):
        return None, help_text(classes)
    return answer, ""


@dataclass(frozen=True)
class Answer:
    """What was said of an image (no label: skipped), with what it takes to go back: its path before, and whether the
    folder of its class was made for it.
    """

    index: int
    label: str | None
    path: str
    made_folder: bool = False


def move_image(images: Collection, index: int, path: str) -> str:
    """Move an image to a path in its folder, under a new name where that is taken; returns its new path."""
    source, target = images.root / images.names[index], images.root / free_path(images.root, path)
    target.parent.mkdir(exist_ok=True)
    shutil.move(source, target)
    images.names[index] = os.path.relpath(target, images.root).replace(os.sep, "/")
    return images.names[index]


def record(images: Collection, book: LabelFile, index: int, label: str | None, move: bool) -> Answer:
    """Write an answer down, and move the image into the folder of its class if it has one and that is wanted."""
    path = images.names[index]
    new = label is not None and move and not (images.root / label).exists()
    if label is not None and move:
        move_image(images, index, os.path.join(label, os.path.basename(path)))
    images.labels[index] = label
    book.put(images.names[index], label)
    return Answer(index, label, path, new)


def move_answered(images: Collection, book: LabelFile) -> int:
    """Move the images with an answer of an earlier run into the folder of their class; returns how many."""
    labels = images.labels.tolist()
    answered = [i for i, name in enumerate(images.names) if labels[i] is not None and label_of_folder(name) is None]
    for i in answered:
        if not is_class_name(labels[i]):
            raise CollectionError(
                f"{book.path} calls {images.names[i]} {labels[i]!r}, which cannot be the name of a folder, so nothing "
                "was moved; use letters and digits"
            )
    planned: dict[str, str] = {}
    for i in answered:
        wanted = os.path.join(labels[i], os.path.basename(images.names[i]))
        planned[images.names[i]] = free_path(images.root, wanted, planned.values())
    moved = dict(planned)
    with book.renaming(moved):
        try:
            for i in answered:
                move_image(images, i, planned[images.names[i]])
        finally:  # a disk that is full must not take the answers to images that have stayed
            for i in answered:
                moved.pop(images.names[i], None)
    return len(moved)


def take_back(images: Collection, book: LabelFile, answer: Answer) -> None:
    """Undo ``record``."""
    given = images.names[answer.index]
    if given != answer.path:
        move_image(images, answer.index, answer.path)
    if answer.made_folder:
        with contextlib.suppress(OSError):  # it holds something else by now
            (images.root / given).parent.rmdir()
    images.labels[answer.index] = None
    book.drop(given)


def check_pool(images: Collection) -> Collection:
    """The images; CollectionError where all have labels, or where there is only one image."""
    if all(label is not None for label in images.labels.tolist()):
        raise CollectionError(
            f"{images.root}: every image has a label, there is nothing to ask for; put new images into it or into "
            f"{images.root / UNLABELLED[0]}, or see with --simulate what active learning would have saved"
        )
    if len(images) < 2:
        raise CollectionError(f"{images.root} has a single image; active learning chooses among several")
    return images


def label_images(
    images: Collection,
    make_learner: Callable[[list[Any]], Any],
    book: LabelFile,
    *,
    ask: Callable[[str], str],
    tell: Callable[[str], None],
    look: Callable[[Path], None] = lambda _: None,
    rounds: int | None = None,
    move: bool = False,
) -> int:
    """Ask for labels until the person quits, ``rounds`` are over or the pool is empty; returns how many came in.

    Parameters
    ----------
    make_learner : a learner of the pool of images from its labels so far, None where there is none
    ask : shows a prompt and returns a line; EOFError and ``q`` end the loop
    tell : shows a line
    look : shows an image
    """
    known = images.labels.tolist()
    skipped = [i for i, name in enumerate(images.names) if known[i] is None and name in book.answers]
    learner = make_learner(known).skip(skipped)
    history: list[Answer] = []
    again: int | None = None
    error: Any = None
    hinted = False

    def learn(answer: Answer) -> None:
        if answer.label is None:
            learner.skip(answer.index)
        else:
            learner.teach([answer.index], [answer.label])

    def given() -> int:
        return sum(answer.label is not None for answer in history)

    while learner.available_.any() and (rounds is None or given() < rounds):
        index = int(learner.query()[0]) if again is None else again
        again = None
        classes = [str(c) for c in learner.classes_]
        left = f"{int(learner.available_.sum())} without a label"
        tell(f"\n{images.root / images.names[index]}   ({left if error is None else f'{left}, {error}'})")
        look(images.root / images.names[index])
        tell(f"  guess: {guess(learner, index)}" if len(classes) > 1 else "  no guess yet: label two classes first")
        if classes:
            tell("  " + "   ".join(f"{i} {name}" for i, name in enumerate(classes, 1)))
        label, command = read_answer(classes, ask, tell, bool(history))
        if command == QUIT:
            break
        if command == UNDO:
            last = history.pop()
            take_back(images, book, last)
            # a learner cannot forget a label, but the answers before it are learned again in no time
            learner = make_learner(known).skip(skipped)
            for answer in history:
                learn(answer)
            tell(f"  taken back: {'skipped' if last.label is None else last.label}")
            again, hinted, error = last.index, False, None
            continue
        history.append(record(images, book, index, label, move))
        learn(history[-1])
        hint = learner.stopping_hint()
        error = hint.error if hint.error.expected >= 0 else None
        if hint.stop and not hinted and learner.available_.any():
            leave = spelt(QUIT, learner.classes_)
            tell(f"  {hint.reason}: {leave} is a good idea now ({hint.error})")
        hinted = hint.stop
    return given()


def read_answer(
    classes: list[str], ask: Callable[[str], str], tell: Callable[[str], None], can_undo: bool
) -> tuple[str | None, str | None]:
    """Ask until there is a label or a command; returns (label, None) or (None, command)."""

    def confirm(question: str) -> bool:
        return ask(f"{question} [y/n] ").strip().lower() in ("y", "yes")

    try:
        while True:
            answer = ask(prompt(classes)).strip()
            command = parse_command(answer, classes)
            if command == UNDO and not can_undo:
                tell("  there is no answer of this run to undo")
            elif command:
                return None, command
            else:
                label, problem = parse_answer(answer, classes, confirm)
                if label is not None:
                    return label, None
                tell(f"  {problem}")
    except EOFError:
        return None, QUIT


def guess(learner: Any, index: int) -> str:
    """The two most probable classes of an image, with their probabilities, and that of a class not seen."""
    new = float(learner.novelty()[index]) if isinstance(learner, PoolLearner) else 0.0
    p = (1.0 - new) * learner.predict_proba()[index]
    first, *others = np.argsort(-p, kind="stable")[:2]
    guesses = [f"{learner.classes_[i]} {100 * p[i]:.0f} %" for i in (first, *(i for i in others if p[i] >= 0.01))]
    return ", ".join([*guesses, f"something new {100 * new:.0f} %"] if new >= 0.01 else guesses)


def next_step(images: Collection, labels: Path, moved: bool = False, options: str = "") -> str:
    """The command that trains on these images, with what has to be done before it.

    Parameters
    ----------
    labels : the file of the answers
    moved : whether all images with an answer lie in the folder of their class
    options : of the recipe that asked
    """
    elsewhere = not moved and labels.resolve() not in [(images.root / name).resolve() for name in LABEL_FILES]
    alone = all(label_of_folder(name) is None for name in images.names)  # else a table hides the sub-folders' labels
    table = f" --labels {shlex.quote(str(labels))}" if elsewhere and alone else ""
    command = f"patchbag train {shlex.quote(str(images.root))}{table}{options}"
    if len({label for label in images.labels.tolist() if label is not None}) < 2:
        return f"next, once two classes have labels: {command}"
    if alone or not elsewhere:
        return f"next: {command}"
    place = images.root / ("labels.json" if labels.suffix.lower() == ".json" else "labels.csv")
    return f"next, once {labels} is {'added' if place.exists() else 'copied'} to {place}: {command}"
