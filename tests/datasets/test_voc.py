from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from patchbag import MultilabelSVM
from patchbag.classifiers.multilabel import choose_C, train_machines
from patchbag.collection import CollectionError
from patchbag.datasets.voc import open_voc
from patchbag.experiments import run_experiment
from patchbag.metrics import average_precision
from patchbag.recipes import make_recipe
from patchbag.runtime import runtime_context

PARTS = {"train": range(8), "val": range(8, 16), "trainval": range(16), "test": range(16, 28)}


def texture(index: int, rng: np.random.Generator) -> np.ndarray:
    """Stripes for one class, blobs for the other, both in every fourth image."""
    y, x = np.mgrid[:48, :64]
    stripes = 60 * np.sin(x / 2 + rng.uniform(0, 6)) if index % 2 == 0 else 0
    checks = 60 * np.sign(np.sin(x / 5) * np.sin(y / 5)) if index % 2 == 1 or index % 4 == 0 else 0
    return np.clip(128 + stripes + checks + rng.normal(0, 4, (48, 64)), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def devkit(tmp_path_factory):
    rng = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("voc") / "VOCdevkit" / "VOC2007"
    (root / "JPEGImages").mkdir(parents=True)
    (root / "ImageSets" / "Main").mkdir(parents=True)
    for i in range(28):
        Image.fromarray(texture(i, rng)).save(root / "JPEGImages" / f"{i:06}.jpg")
    shows = {"stripes": lambda i: i % 2 == 0, "checks": lambda i: i % 2 == 1 or i % 4 == 0}
    for part, indices in PARTS.items():
        for name, has in shows.items():
            lines = [f"{i:06} {0 if i in (3, 19) and name == 'checks' else 1 if has(i) else -1:2}" for i in indices]
            (root / "ImageSets" / "Main" / f"{name}_{part}.txt").write_text("\n".join(lines) + "\n")
    return root


def test_the_devkit_is_read(devkit):
    images = open_voc(devkit)
    assert images.classes == ["checks", "stripes"] and len(images) == 28
    assert [np.sum(images.parts == part) for part in ("train", "val", "test")] == [8, 8, 12]
    assert images.paths[5].endswith("000005.jpg")
    assert images.truth[3].tolist() == [0, -1] and images.truth[4].tolist() == [1, 1]
    assert open_voc(devkit.parents[1], ("test",)).truth.shape == (12, 2)


def test_what_is_not_a_devkit_is_an_error(devkit, tmp_path):
    with pytest.raises(CollectionError, match="not a VOCdevkit folder"):
        open_voc(tmp_path)
    with pytest.raises(CollectionError, match=r"no files \*_segmentation.txt"):
        open_voc(devkit, ("segmentation",))
    sets = tmp_path / "ImageSets" / "Main"
    sets.mkdir(parents=True)
    (sets / "cat_val.txt").write_text("000001 2\n")
    with pytest.raises(CollectionError, match="line 1: expected an image and 1, -1 or 0"):
        open_voc(tmp_path, ("val",))
    (sets / "cat_val.txt").write_text("000001 1\n")
    (sets / "dog_val.txt").write_text("000002 1\n")
    with pytest.raises(CollectionError, match="lists other images"):
        open_voc(tmp_path, ("val",))


def test_machines_do_not_see_difficult_images(rng):
    points = rng.normal(size=(30, 3))
    truth = np.where(points[:, :2] > 0, 1, -1)
    truth[[0, 5], 0] = 0
    dual, intercept = train_machines(points @ points.T, truth, 10.0)
    assert dual[[0, 5], 0].tolist() == [0, 0] and dual[[0, 5], 1].any()
    machines = MultilabelSVM(10.0).fit(points, truth)
    np.testing.assert_allclose(machines.decision_function(points), points @ (points.T @ dual) + intercept)
    with pytest.raises(ValueError, match="class 1 has no positive or no negative"):
        train_machines(points @ points.T, np.where([[True, False]], truth, 1), 1.0)


def test_c_is_the_one_that_ranks_the_validation_images_best(rng):
    points = rng.normal(size=(40, 5))
    truth = np.where(points[:, :1] + rng.normal(0, 0.7, (40, 1)) > 0, 1, -1)
    gram = points @ points.T
    found = choose_C(gram, truth, np.arange(40) >= 20)
    assert found == MultilabelSVM(validation=np.arange(40) >= 20).fit(points, truth).C_
    with pytest.raises(ValueError, match="chosen on validation images"):
        MultilabelSVM().fit(points, truth)
    quality = {}
    for c in (1.0, 10.0, 100.0):
        dual, intercept = train_machines(gram[:20, :20], truth[:20], c)
        quality[c] = average_precision(truth[20:, 0], gram[20:, :20] @ dual[:, 0] + intercept[0])
    assert quality[found] == max(quality.values())


def test_an_experiment_on_the_devkit(devkit):
    settings = {"statistics.mixture.n_components": 4, "statistics.projection.n_components": 8}
    spec = {"name": "x", "kind": "voc", "title": "t", "data": "VOCdevkit/VOC2007", "settings": settings}
    spec["run"] = [{"name": "words", "recipe": "words", "published": 12.0}]
    spec["run"].append({"name": "with colours", "recipe": "words", "features": ["sift", "color"]})
    row, both = run_experiment(spec, devkit.parents[1])["runs"]
    images = open_voc(devkit)
    train, test = np.flatnonzero(images.parts != "test"), np.flatnonzero(images.parts == "test")
    recipe = make_recipe("words").set_params(**{k.replace(".", "__"): v for k, v in settings.items()})
    recipe.steps[-1] = ("classifier", MultilabelSVM(validation=images.parts[train] == "val"))
    with runtime_context(seed=0):
        recipe.fit([images.paths[i] for i in train], images.truth[train])
    scores = recipe.decision_function([images.paths[i] for i in test])
    precisions = [average_precision(t == 1, s, t == 0) for t, s in zip(images.truth[test].T, scores.T)]
    assert row["mean"] == pytest.approx(100 * np.mean(precisions)) and row["mean"] > 90
    assert set(row["classes"]) == {"checks", "stripes"} and both["mean"] > 80
