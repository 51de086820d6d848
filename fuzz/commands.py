"""Commands that ``kills.py`` stops at any moment: train, evaluate, and active with and without ``--move``.

Each works on a folder of a dozen textures in a process that was forked from one with all imports done, and the same
command is given again after the kill: it ends as one that was never stopped, whatever the first had written by then.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import campaign

MANY = 12
SMALL = ["-j", "1", "-s", "statistics.mixture.n_components=2", "-s", "statistics.projection.n_components=4"]
SMALL += ["-s", "features.step=16"]
SPLITS = 4
SPLIT = re.compile(r"split (\d+) of \d+: [\d.]+ %")


def warm_up() -> None:
    """Let the commands run once in this process, so that what is forked from it has imported and compiled all."""
    from patchbag.cli import screen

    show, here = screen.result, os.getcwd()
    with campaign.folder() as place:
        lay_out(Path(place))
        screen.result = lambda text: None  # type: ignore[assignment]
        for task in (train, evaluate):
            task(Path(place), Voice())
    with campaign.folder() as place:
        lay_out(Path(place), in_classes=False)
        label(Path(place), Voice())
    screen.result = show
    os.chdir(here)


class Voice:
    """Tells the one who kills what is done, if there is one; a word is a line."""

    def __init__(self, pipe: int | None = None) -> None:
        self.pipe = pipe

    def __call__(self, word: str) -> None:
        if self.pipe is not None:
            os.write(self.pipe, f"{word}\n".encode())


def forked(task: Callable[[Voice], None]) -> tuple[int, int]:
    """A process that does a task, and the pipe through which it acknowledges."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            os.close(read)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            task(Voice(write))
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    return child, read


def read_words(pipe: int, said: bytes = b"") -> list[str]:
    """All that a process still says; a word that was cut off was not heard."""
    while part := os.read(pipe, 1 << 16):
        said += part
    os.close(pipe)
    return [word for word in said.decode(errors="replace").split("\n")[: said.count(b"\n")] if word]


def completed(task: Callable[[Path, Voice], None], folder: Path) -> list[str]:
    """What a command says that is left alone."""
    child, pipe = forked(partial(task, folder))
    said = read_words(pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"{task.__name__}: the same command again ends with {status}: {said[-1:]}"
    return said


def give(folder: Path, say: Voice, *arguments: str) -> None:
    """A command in the folder, with a store of features there; whatever it says to the person is heard."""
    from patchbag.cli import app

    if say.pipe is not None:
        os.dup2(say.pipe, 2)
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - as long as the process
    os.environ["PATCHBAG_CACHE"] = str(folder / "cache")
    os.chdir(folder)
    try:
        app([*arguments, *SMALL], standalone_mode=False)
    except Exception as error:
        say(f"error: {type(error).__name__}: {error}")
        raise


@cache
def pictures() -> list[tuple[str, bytes]]:
    """Files of two classes."""
    import io

    from PIL import Image

    from conftest import texture

    found = []
    for i in range(MANY):
        file = io.BytesIO()
        Image.fromarray(texture(("bars", "stripes")[i % 2], i, 48)).save(file, "PNG")
        found.append((f"{i}.png", file.getvalue()))
    return found


def label_of(name: str) -> str:
    return ("bars", "stripes")[int(Path(name).stem.partition("-")[0]) % 2]


def lay_out(folder: Path, in_classes: bool = True) -> None:
    """The photographs, in folders of their classes or all in one."""
    for name, data in pictures():
        place = folder / "photos" / (label_of(name) if in_classes else "")
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)


def train(folder: Path, say: Voice) -> None:
    say("begun")
    give(folder, say, "train", "photos", "-o", "model", "-r", "words")
    say("done")


def evaluate(folder: Path, say: Voice) -> None:
    say("begun")
    outputs = ["--json", "figures.json", "--report", "report.html"]
    give(folder, say, "evaluate", "photos", "-r", "words", "--splits", str(SPLITS), *outputs)
    say("done")


def label(folder: Path, say: Voice, move: bool = False, rounds: int = MANY) -> None:
    """A person who knows the classes answers; the next question acknowledges the answer to the last one."""
    from patchbag.cli import active, screen

    asked: list[str] = []

    def show(text: Any) -> None:
        if found := re.match(r"\n(.+\.png)   \(", str(text)):
            asked.append(os.path.basename(found[1]))

    def answer(prompt: str) -> str:
        if len(asked) > 1:
            say(f"answered {asked[-2]}")
        return label_of(asked[-1])

    screen.result, active.input = show, answer  # type: ignore[attr-defined, assignment]
    say("begun")
    options = ["--rounds", str(rounds), *(["--move"] if move else [])]
    give(folder, say, "active", "photos", "-r", "gp-fisher", *options)
    say("done")


def label_and_move(folder: Path, say: Voice) -> None:
    label(folder, say, move=True)


@cache
def undisturbed(task: Callable[..., None]) -> tuple[bytes, float]:
    """What a command writes that was not stopped, and the seconds that it takes."""
    with campaign.folder() as place:
        folder = Path(place)
        lay_out(folder, in_classes=task in (train, evaluate))
        started = time.monotonic()
        completed(task, folder)
        return result_of(folder), time.monotonic() - started


def result_of(folder: Path) -> bytes:
    """The model, or the accuracies of the splits, or the labels."""
    if (folder / "model").exists():
        return (folder / "model").read_bytes()
    if (folder / "figures.json").exists():
        splits = json.loads((folder / "figures.json").read_text())["splits"]
        return json.dumps([[split["accuracy"], split["confusion"]] for split in splits]).encode()
    return b""


def check_train(folder: Path, said: list[str]) -> None:
    from patchbag import Categorizer

    if (folder / "model").exists():
        Categorizer.load(folder / "model")
    assert (folder / "model").exists() or "done" not in said, "the model is gone"
    completed(train, folder)
    assert result_of(folder) == undisturbed(train)[0], "trained again, the model is another"


def check_evaluate(folder: Path, said: list[str]) -> None:
    kept = {found[1] for word in said if (found := SPLIT.match(word))}
    complete = (folder / "figures.json").exists()
    if complete:
        assert result_of(folder) == undisturbed(evaluate)[0]
        (folder / "figures.json").unlink()
    if (folder / "report.html").exists():
        assert (folder / "report.html").read_text().rstrip().endswith("</html>"), "half a report"
    again = completed(evaluate, folder)
    assert result_of(folder) == undisturbed(evaluate)[0], "evaluated again, the figures are others"
    done_twice = kept & {found[1] for word in again if (found := SPLIT.match(word))}
    assert complete or not done_twice, f"split {done_twice} is run again"


def check_labels(folder: Path, said: list[str]) -> None:
    from patchbag.collection import open_collection

    found = open_collection(folder / "photos")
    assert len(found) == MANY, f"{len(found)} of {MANY} images are left"
    now = dict(zip((os.path.basename(name) for name in found.names), found.labels.tolist()))
    answered = [word.split()[1] for word in said if word.startswith("answered ")]
    lost = [name for name in answered if now.get(name) != label_of(name)]
    assert not lost, f"{len(lost)} of {len(answered)} answers are lost, first {lost[0]}"
    wrong = [name for name, given in now.items() if given not in (None, label_of(name))]
    assert not wrong, f"{wrong[0]} has another label than it was given"
    if None in now.values():
        completed(label, folder)
        assert None not in open_collection(folder / "photos").labels.tolist()
