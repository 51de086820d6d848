"""Processes that are killed while they write: nothing that was acknowledged is lost, everything opens.

A case prepares a folder, forks one or two writers, lets them work for a random time behind their first word, kills them
(SIGKILL, as a power cut would) and looks at what is left.  Commands (``commands.py``) are killed anywhere between their
beginning and their end.  ``FUZZ_TASK=folders`` takes one kind of work only.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests")]

# threads of a process do not live on in one that is forked from it
os.environ |= {"NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import campaign  # noqa: E402
import commands  # noqa: E402
import numpy as np  # noqa: E402

Say = Callable[[str], None]


def put_labels(folder: Path, say: Say, who: int) -> None:
    from patchbag.collection.labels import LabelFile

    book = LabelFile.open(folder / "labels.csv")
    for i in count():
        book.put(f"{who}-{i}.png", "cat")
        say(f"{who}-{i}.png")


def check_labels(folder: Path, said: list[str]) -> None:
    from patchbag.collection.labels import LabelFile

    kept = LabelFile.open(folder / "labels.csv").answers
    lost = [name for name in said if name not in kept]
    assert not lost, f"{len(lost)} of {len(said)} answers are lost, first {lost[0]}"


def save_models(folder: Path, say: Say, who: int) -> None:
    from patchbag import LinearClassifier
    from patchbag.storage import models as storage

    rng = np.random.default_rng(0)
    model = LinearClassifier(C=1.0).fit(rng.normal(size=(20, 4)), np.tile(["a", "b"], 10))
    for i in count(1):
        model.coef_ = np.full((1, 200_000), float(i))
        model.n_features_in_ = 200_000
        storage.save(model, folder / "model")
        say(str(i))


def check_models(folder: Path, said: list[str]) -> None:
    from patchbag.storage import models as storage

    if said or (folder / "model").exists():
        coef = storage.load(folder / "model").coef_
        assert len(np.unique(coef)) == 1 and (not said or coef[0, 0] >= 1)


def save_bags(folder: Path, say: Say, who: int) -> None:
    from patchbag import Bags

    for i in count(1):
        Bags(np.full((1000 * (1 + i % 3), 20), float(i)), [0, 1000 * (1 + i % 3)]).save(folder / "bags")
        say(str(i))


def check_bags(folder: Path, said: list[str]) -> None:
    from patchbag import Bags

    if said:
        values = Bags.load(folder / "bags").values
        assert len(np.unique(values)) == 1, "old and new arrays are mixed"


def move_images(folder: Path, say: Say, who: int) -> None:
    from patchbag.cli.dialogue import move_answered
    from patchbag.collection import open_collection
    from patchbag.collection.labels import LabelFile

    say("begun")
    book = LabelFile.open(folder / "labels.csv")
    move_answered(open_collection(folder, book), book)
    time.sleep(9)


def prepare_images(folder: Path) -> None:
    from PIL import Image

    from patchbag.collection.labels import LabelFile

    names = [f"{i}.png" for i in range(30)]
    for name in names:
        Image.new("L", (8, 8)).save(folder / name)
    book = LabelFile(folder / "labels.csv", {name: "cat" if i % 2 else "dog" for i, name in enumerate(names)})
    with book._rewritten():
        book.answers = {name: "cat" if i % 2 else "dog" for i, name in enumerate(names)}


def check_images(folder: Path, said: list[str]) -> None:
    from patchbag.collection import open_collection

    found = open_collection(folder)
    assert len(found) == 30, f"{len(found)} of 30 images are left"
    wrong = [name for name, label in zip(found.names, found.labels) if label != ("dog", "cat")[_number(name) % 2]]
    assert not wrong, f"{wrong[0]} has lost its label"


def _number(name: str) -> int:
    return int(Path(name).stem.partition("-")[0])


def store_features(folder: Path, say: Say, who: int) -> None:
    from patchbag.collection.store import Store

    store = Store(folder / "store")
    with store.opened():
        for i in count():
            images = {f"{who}-{i}-{j}".encode(): _described(i, j) for j in range(3)}
            shard, known = store.find("feature", [])
            store.append("feature", images, known, shard.id if shard else 0)
            say(f"{who}-{i}")


def _described(i: int, j: int) -> list[np.ndarray]:
    return [np.full((50 + j, 8), i * 10 + j, np.float32), np.zeros((50 + j, 2), np.float32)]


def check_store(folder: Path, said: list[str]) -> None:
    from patchbag.collection.store import Store

    store = Store(folder / "store")
    with store.opened():
        keys = {f"{name}-{j}".encode(): _described(int(name.split("-")[1]), j) for name in said for j in range(3)}
        shard, entries = store.find("feature", keys)
        assert not keys or shard is not None
        for key, (values, _) in keys.items():
            assert key in entries and np.array_equal(entries[key].rows(shard.map())[0], values), f"{key!r} is lost"


def keep_journal(folder: Path, say: Say, who: int) -> None:
    from patchbag.experiments.journal import Journal

    journal = Journal(folder / "journal.jsonl")
    for i in count():
        journal[f"{who}-{i}"] = {"figure": i, "more": list(range(200))}
        say(f"{who}-{i}")


def check_journal(folder: Path, said: list[str]) -> None:
    from patchbag.experiments.journal import Journal

    journal = Journal(folder / "journal.jsonl")
    assert all(name in journal for name in said)


def write_indexes(folder: Path, say: Say, who: int) -> None:
    from patchbag.search.index_file import write_index

    for i in count(1):
        write_index(folder / "index", {"number": i}, {"vectors": np.full((2000, 20), i, np.float32)})
        say(str(i))


def check_indexes(folder: Path, said: list[str]) -> None:
    from patchbag.search.index_file import read_index

    found = read_index(folder / "index")
    assert not said or (found is not None and np.all(found[1]["vectors"] == found[0]["number"]))


def _use_small_network(folder: Path) -> None:
    """The index of a folder, with colours in place of the network's vectors."""
    from PIL import Image

    from patchbag.features.networks import preparation
    from patchbag.search import encoder

    def vector(source: str, model: str = "", name: str | None = None) -> np.ndarray:
        return np.asarray(Image.open(source).convert("RGB").resize((4, 4)), np.float32).ravel()

    os.environ["PATCHBAG_CACHE"] = str(folder / "cache")
    preparation.pooled_vector, encoder.QUICK = vector, 10**6


def index_folder(folder: Path, say: Say, who: int) -> None:
    """Images come and go, and the index keeps up: plain at first, then with codes, and plain again."""
    from PIL import Image

    from patchbag.search import SearchIndex

    _use_small_network(folder)
    (folder / "photos").mkdir()
    rng = np.random.default_rng(0)
    for i in count():
        for j in range(3):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / "photos" / f"{i}-{j}.png")
        (folder / "photos" / f"{i // 2}-0.png").unlink(missing_ok=True)
        SearchIndex(folder / "photos", compress=bool(i // 4 % 2)).update()
        say(str(i))


def check_folder(folder: Path, said: list[str]) -> None:
    from patchbag.search import SearchIndex

    _use_small_network(folder)
    index = SearchIndex(folder / "photos")
    assert index.built or not said, "the index is gone"
    assert len(index.names) == len(index.vectors)
    assert index.compressed is None or len(index.compressed) == len(index)
    for path in (folder / "photos").iterdir():  # the last one was cut off while it was written, perhaps
        if path.stat().st_size < 100:
            path.unlink()
    index.update()
    names = {path.name for path in (folder / "photos").iterdir()}
    assert set(index.names) | set(index.failures) == names, "the index has other images than the folder"
    for name in index.names[:5]:
        best = index.search((folder / "photos" / name).read_bytes(), top=1)[0]
        assert best.distance < 1e-5, f"{name} has another vector than its own"


class Task(NamedTuple):
    """What is killed, and how what is left is looked at."""

    work: Callable[..., None]
    check: Callable[..., None]
    by_two: bool = False  # sometimes
    lay_out: Callable[[Path], None] = lambda folder: None
    command: bool = False  # it has an end, which the kill comes before or after


def _command(work: Callable[..., None], check: Callable[..., None], in_classes: bool) -> Task:
    def begin(folder: Path, say: Say, who: int) -> None:
        work(folder, say)

    begin.command = work  # type: ignore[attr-defined]
    return Task(begin, check, True, partial(commands.lay_out, in_classes=in_classes), True)


TASKS = {
    "labels": Task(put_labels, check_labels, by_two=True),
    "models": Task(save_models, check_models, by_two=True),
    "bags": Task(save_bags, check_bags, by_two=True),
    "moves": Task(move_images, check_images, lay_out=prepare_images),
    "store": Task(store_features, check_store, by_two=True),
    "journal": Task(keep_journal, check_journal),
    "indexes": Task(write_indexes, check_indexes),
    "folders": Task(index_folder, check_folder),
    "train": _command(commands.train, commands.check_train, True),
    "evaluate": _command(commands.evaluate, commands.check_evaluate, True),
    "active": _command(commands.label, commands.check_labels, False),
    "active --move": _command(commands.label_and_move, commands.check_labels, False),
}


def prepare() -> campaign.Case:
    import patchbag.search.compressed
    import patchbag.search.index
    import patchbag.search.index_file
    import patchbag.storage.models
    from patchbag import Bags, LinearClassifier

    assert Bags and LinearClassifier and patchbag.storage.models  # imported before the forks
    commands.warm_up()

    def case(seed: int) -> str:
        rng = random.Random(seed)
        name = os.environ.get("FUZZ_TASK") or rng.choice(sorted(TASKS))
        task = TASKS[name]
        two = task.by_two and rng.random() < 0.5
        longest = rng.choice((0.005, 0.05, 0.2))
        if task.command:
            longest = 1.1 * commands.undisturbed(task.work.command)[1]  # type: ignore[attr-defined]
        with campaign.folder() as place:
            folder = Path(place)
            task.lay_out(folder)
            children = [
                commands.forked(lambda say, who=who: task.work(folder, say, who))  # type: ignore[misc]
                for who in range(2 if two else 1)
            ]
            first = os.read(children[0][1], 1 << 16)
            time.sleep(rng.random() * longest)
            for child, _ in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            words = [commands.read_words(pipe, b"" if i else first) for i, (_, pipe) in enumerate(children)]
            task.check(folder, [*chain(*words)])
        return f"{name}{' by two' if two else ''}"

    return case


if __name__ == "__main__":
    campaign.main(__file__, prepare, share=20)
