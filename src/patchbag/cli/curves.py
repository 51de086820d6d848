# SPDX-License-Identifier: BSD-3-Clause
"""Learning curves of a labelled folder: what active learning would have saved, in words, as a plot and as JSON."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.active.simulation import LearningCurves, simulate
from patchbag.cli.screen import count
from patchbag.storage.replacing import write_json


def learning_curves(
    pool: Any, labels: Any, criterion: str, rounds: int = 50, runs: int = 10, seed: Any = 0, start: int = 0
) -> LearningCurves:
    """The criterion against random selection, one label per round, ``rounds`` cut to the images that there are.

    Parameters
    ----------
    pool : an ImageGraph or a kernel (N, N), as the criterion needs it
    start : first labels per class.  0 starts from nothing, and all images without a label are judged; else a third of
        the smallest class, at most 10 images, is held out of every class for testing, as kapoor2010 does
    """
    labels = np.asarray(labels)
    classes, sizes = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"all {len(labels)} images are of the class {classes[0]}; a simulation needs at least two")
    if start and sizes.min() < start + 2:
        few = str(classes[np.argmin(sizes)])
        raise ValueError(
            f"class {few!r} has {sizes.min()} images; a simulation with {start} first per class needs {start + 2} or "
            "more of every class"
        )
    n_test = min(10, max(1, (int(sizes.min()) - start) // 3)) if start else 0
    most = len(labels) - (n_test * len(classes) if start else 1)
    return simulate(
        pool,
        labels,
        criteria=list(dict.fromkeys([criterion, "random"])),
        n_labels=min(start * len(classes) + rounds, most),
        n_runs=runs,
        n_test=n_test,
        n_start=start,
        random_state=seed,
    )


def summarise(curves: LearningCurves, cut: int | None = None) -> str:
    """In words: the last value of every curve, the labels that the criterion needed to reach that of random selection,
    and the numbers of runs and test images.

    Parameters
    ----------
    curves : from ``learning_curves``
    cut : the number of rounds that were asked for, where there are fewer
    """
    first = next(iter(curves.scores))
    runs = len(curves.scores[first])
    labels = count(int(curves.n_labels[-1]), "label")
    lines = []
    for name in curves.scores:
        # a single run says nothing of the spread, which is not zero
        spread = f" ± {100 * curves.standard_error(name)[-1]:.1f}" if runs > 1 else ""
        lines.append(f"{name}: {100 * curves.mean(name)[-1]:.1f}{spread} % after {labels}")
    reached = curves.labels_to_reach(first, float(curves.mean("random")[-1]))
    if first != "random" and reached is not None:
        lines.append(f"{first} reaches the end of random selection with {reached} of {labels}")
    elif first != "random":
        lines.append(f"{first} does not reach the end of random selection")
    n_test = int(curves.confusions[first].sum()) // runs
    several = f"{runs} runs, ± is the standard error over runs" if runs > 1 else "1 run"
    lines.append(f"mean accuracy per class, on the {count(n_test, 'image')} without a label at the end; {several}")
    if cut is not None:
        lines.append(f"{cut} rounds were asked for, but there are no more images")
    return "\n".join(lines)


def write_curves(curves: LearningCurves, stem: str | os.PathLike[str], title: str = "") -> tuple[Path, Path]:
    """A plot with standard errors and a JSON file of the curves; returns both paths."""
    plot_path, data_path = Path(f"{stem}.png"), Path(f"{stem}.json")
    plot_path.parent.mkdir(parents=True, exist_ok=True)
    curves.plot(title=title).figure.savefig(plot_path, dpi=130, metadata={"Software": "patchbag"})
    data = {
        name: {
            "mean": curves.mean(name).tolist(),
            "standard_error": curves.standard_error(name).tolist(),
            "runs": scores.tolist(),
        }
        for name, scores in curves.scores.items()
    }
    write_json(data_path, {"title": title, "n_labels": curves.n_labels.tolist(), "curves": data})
    return plot_path, data_path
