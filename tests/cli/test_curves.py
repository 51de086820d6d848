# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC

from patchbag.active.pool import pool_kernel
from patchbag.cli.curves import learning_curves, summarise, write_curves
from patchbag.cli.dialogue import next_step
from patchbag.collection import Collection
from patchbag.similarity.inner_product import InnerProductKernel
from patchbag.similarity.union import KernelUnion


def two_groups(n: int, seed: int = 0) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(n, 2)) + np.array([[3.0, 0.0]]) * (np.arange(n) % 2)[:, None]
    return np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(axis=2))


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


# --- the next step -----------------------------------------------------------------------------------------------


def test_the_next_step_is_a_command_that_finds_the_answers(tmp_path):
    root = tmp_path / "my photos"
    two, one = (
        Collection(root, ["a", "b", "c"], np.array(labels, object)) for labels in (["x", "y", None], ["x", None, None])
    )
    command = f"patchbag train '{root}'"
    assert next_step(two, root / "labels.csv") == next_step(two, root / "labels.json") == f"next: {command}"
    assert next_step(one, root / "labels.csv") == f"next, once two classes have labels: {command}"
    other = tmp_path / "other answers.csv"
    assert next_step(two, other) == f"next: {command} --labels '{other}'"
    assert next_step(one, other) == f"next, once two classes have labels: {command} --labels '{other}'"
    assert next_step(two, other, moved=True) == f"next: {command}"
    in_folders = Collection(root, ["x/a", "b", "c"], np.array(["x", "y", None], object))  # --labels would hide x
    assert next_step(in_folders, other) == f"next, once {other} is copied to {root / 'labels.csv'}: {command}"
    root.mkdir()
    (root / "labels.csv").touch()
    assert next_step(in_folders, other) == f"next, once {other} is added to {root / 'labels.csv'}: {command}"


# --- the simulation ----------------------------------------------------------------------------------------------


def test_curves_compare_the_criterion_with_random_choice_and_repeat(tmp_path):
    # random choice hardly meets the rare class
    rare = np.repeat(["few", "many"], [30, 270])
    points = np.random.default_rng(2).normal(size=(300, 2)) + 2.0 * (rare == "few")[:, None]
    kernel = np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(axis=2))
    curves, again = (learning_curves(kernel, rare, "uncertainty", 30, 4, 1, start=1) for _ in range(2))
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
    curves = learning_curves(two_groups(12), list("ab" * 6), "random", rounds=500, runs=1)
    assert list(curves.scores) == ["random"] and curves.n_labels[-1] == 11
    assert summarise(curves).startswith("random")
    assert "500 rounds were asked for" in summarise(curves, 500) and "asked for" not in summarise(curves)
    first = learning_curves(two_groups(12), list("ab" * 6), "random", rounds=500, runs=1, start=1)
    assert first.n_labels[[0, -1]].tolist() == [2, 10]


def test_a_summary_says_what_it_rests_on_and_gives_one_run_no_error():
    one, three = (learning_curves(two_groups(12), list("ab" * 6), "margin", 4, runs) for runs in (1, 3))
    assert "±" not in summarise(one) and "on the 8 images without a label at the end; 1 run" in summarise(one)
    error = 100 * three.standard_error("random")[-1]
    assert f" ± {error:.1f} % after 4 labels" in summarise(three)
    assert "3 runs, ± is" in summarise(three)


def test_too_little_to_simulate_is_a_clear_error():
    with pytest.raises(ValueError, match="all 5 images are of the class x"):
        learning_curves(np.eye(5), ["x"] * 5, "margin")
    with pytest.raises(ValueError, match="class 'b' has 2 images; a simulation with 1 first per class needs 3"):
        learning_curves(np.eye(6), list("aaaabb"), "margin", start=1)
