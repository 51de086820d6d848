# SPDX-License-Identifier: BSD-3-Clause
"""What ``patchbag active`` needs besides the dialogue: the kernel of a pool, learning curves, the next step.

``pool_kernel`` makes the kernel between all images out of a recipe: its steps up to the classifier, fitted on the whole
pool, which needs no labels.  A symmetric matrix is taken as the kernel (clipped where it is not positive semidefinite);
other rows are vectors whose inner products count.  Several kernels are added, with weights from the evidence of the
labels there are (from three a class on), else equal ones.

``learning_curves`` replays a fully labelled folder (kapoor2010, figures 8 to 10), and ``write_curves`` keeps what came
out.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.active.folder import LABEL_FILES, PartlyLabelled
from patchbag.active.simulation import LearningCurves, simulate
from patchbag.bags import Bags
from patchbag.classifiers.gaussian_process.classifier import GaussianProcessCategorizer
from patchbag.classifiers.gaussian_process.kernel_stack import check_kernel
from patchbag.similarity.inner_product import InnerProductKernel


def pool_kernel(pipeline: Any, images: Any, labels: Any = None) -> np.ndarray:
    """(N, N) kernel between all images under a recipe, or any pipeline that ends in a classifier.

    Parameters
    ----------
    images : what the pipeline takes
    labels : (N,) with None where there is none; only to weigh several kernels
    """
    data: Any = images
    for name, step in pipeline.steps[:-1]:
        if not (name == "features" and isinstance(data, Bags)):
            data = step.fit(data).transform(data) if name == "features" else step.fit_transform(data)
    if (
        isinstance(data, Bags)
        or not isinstance(data, np.ndarray)
        or data.ndim not in (2, 3)
        or len(data) != len(images)
    ):
        raise ValueError("active learning needs a recipe whose steps before the classifier give vectors or kernels")
    if data.ndim == 3:
        return _weighted_sum(np.moveaxis(data, 2, 0), labels)
    size = float(np.abs(data).max(initial=0.0))
    symmetric = data.shape == (len(data),) * 2 and np.abs(data - data.T).max() <= 1e-4 * size
    return _unit(data if symmetric else InnerProductKernel().fit_transform(data))


def _unit(kernel: np.ndarray) -> np.ndarray:
    """Semidefinite, with a mean diagonal of one, so that the same noise suits every recipe."""
    kernel, _ = check_kernel(np.asarray(kernel, dtype=float), repair=True)
    return kernel / max(float(np.trace(kernel)) / len(kernel), 1e-300)


def _weighted_sum(kernels: np.ndarray, labels: Any) -> np.ndarray:
    kernels = np.stack([_unit(kernel) for kernel in kernels])
    known = [i for i, label in enumerate([] if labels is None else labels) if label is not None]
    names = [labels[i] for i in known]
    weights = np.ones(len(kernels))
    if len(set(names)) > 1 and len(names) >= 3 * len(set(names)):
        taught = np.moveaxis(kernels[:, known][:, :, known], 0, 2)
        weights = GaussianProcessCategorizer(repair=True, calibrate=False).fit(taught, names).weights_
    return _unit(np.tensordot(weights, kernels, axes=1))


def next_step(images: PartlyLabelled, labels: Path, moved: bool = False) -> str:
    """The command that trains on these images, with what has to be done before it.

    Parameters
    ----------
    labels : the file of the answers
    moved : whether all images with an answer lie in the folder of their class
    """
    command = f"patchbag train {shlex.quote(str(images.root))}"
    if len({label for label in images.labels if label is not None}) < 2:
        return f"next, once two classes have labels: {command}"
    if moved or labels.resolve() in [(images.root / name).resolve() for name in LABEL_FILES]:
        return f"next: {command}"
    # training looks for answers nowhere else
    place = images.root / ("labels.json" if labels.suffix.lower() == ".json" else "labels.csv")
    return f"next, once {labels} is copied to {place}: {command}"


# --- the simulation ----------------------------------------------------------------------------------------------


def learning_curves(
    kernel: np.ndarray, labels: Any, criterion: str = "uncertainty", rounds: int = 50, runs: int = 10, seed: Any = 0
) -> LearningCurves:
    """The criterion against random selection: one first label a class, then one label a round.

    A third of the smallest class, at most 10 images, is held out of every class for testing; ``rounds`` is cut to the
    images that there are.
    """
    labels = np.asarray(labels)
    classes, sizes = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"all {len(labels)} images are of the class {classes[0]}; a simulation needs at least two")
    if sizes.min() < 3:
        few = classes[np.argmin(sizes)]
        raise ValueError(f"class {str(few)!r} has {sizes.min()} images; a simulation needs 3 or more of every class")
    n_test = min(10, int(sizes.min()) // 3)
    most = len(labels) - n_test * len(classes)
    criteria = list(dict.fromkeys([criterion, "random"]))
    last = min(len(classes) + rounds, most)
    return simulate(kernel, labels, criteria=criteria, n_labels=last, n_runs=runs, n_test=n_test, random_state=seed)


def summarise(curves: LearningCurves, rounds: int | None = None) -> str:
    """The end of every curve, how many labels the criterion needed for what random selection reached, and what these
    figures rest on.

    Parameters
    ----------
    curves : from ``learning_curves``
    rounds : how many were asked for; that there are fewer is said
    """
    first = next(iter(curves.scores))
    runs = len(curves.scores[first])
    lines = []
    for name in curves.scores:
        # a single run says nothing of the spread, which is not zero
        spread = f" ± {100 * curves.standard_error(name)[-1]:.1f}" if runs > 1 else ""
        lines.append(f"{name}: {100 * curves.mean(name)[-1]:.1f}{spread} % after {curves.n_labels[-1]} labels")
    reached = curves.labels_to_reach(first, float(curves.mean("random")[-1]))
    if first != "random" and reached is not None:
        lines.append(f"{first} reaches the end of random selection with {reached} of {curves.n_labels[-1]} labels")
    elif first != "random":
        lines.append(f"{first} does not reach the end of random selection")
    n_test = int(curves.confusions[first].sum()) // runs
    several = f"{runs} runs, each with {n_test} test images of its own; ± is the standard error over runs"
    lines.append(f"mean accuracy per class, from {several if runs > 1 else f'1 run with {n_test} test images'}")
    done = int(curves.n_labels[-1] - curves.n_labels[0])
    if rounds is not None and done < rounds:
        lines.append(f"{rounds} rounds were cut to {done}: after them every image that is not for testing has a label")
    return "\n".join(lines)


def write_curves(curves: LearningCurves, stem: str | os.PathLike[str], title: str = "") -> tuple[Path, Path]:
    """A plot with standard errors and a JSON file of the curves; returns both paths."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    plot_path, data_path = Path(f"{stem}.png"), Path(f"{stem}.json")
    plot_path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    for name, color in zip(curves.scores, ("#2b66b1", "#b3402f", "#4d8f4d", "#8a5fb0", "#b08a2b", "#555555")):
        mean, error = 100 * curves.mean(name), 100 * curves.standard_error(name)
        axes.errorbar(
            curves.n_labels, mean, error, label=name, color=color, capsize=2, errorevery=max(1, len(mean) // 15)
        )
    axes.set(xlabel="labels", ylabel="mean accuracy per class, %", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(plot_path, dpi=130)
    plt.close(figure)
    data = {
        name: {
            "mean": curves.mean(name).tolist(),
            "standard_error": curves.standard_error(name).tolist(),
            "runs": scores.tolist(),
        }
        for name, scores in curves.scores.items()
    }
    data_path.write_text(json.dumps({"title": title, "n_labels": curves.n_labels.tolist(), "curves": data}, indent=1))
    return plot_path, data_path
