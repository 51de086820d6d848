# SPDX-License-Identifier: BSD-3-Clause
"""Why: which patches of an image spoke for a class and which against it, and which labels decided.

The classifier of the pool is linear in vectors that are means over the patches of a network, up to a root, a centre and
a length; for the image at hand these only scale, so that its score is a sum over its patches (:mod:`patchbag.explain`).
"""

from typing import Any

import numpy as np

from patchbag.explain.heat import heat_map
from patchbag.explain.pooling import affine_steps, centred, mean_shares
from patchbag.features.deep import DeepPatches
from patchbag.page.folder import inside
from patchbag.page.session import Page

GRID = 24  # cells of the heat map along the longer side
VOTERS = 8
HEAD = "_conv_head.clip"  # of EfficientNet-Lite, whose mean over the image is the pooled vector
NOTE = (
    "The patches and the rest add up to the score exactly. What a patch says is what it adds to this image: the root "
    "and the length of the vector are those of the whole image, and would be others without the patch."
)
NO_GRID = "The recipe does not classify by a mean of patches, so that its score is no sum over them."


def explain(page: Page, image: int, label: int | None) -> dict[str, Any]:
    """What ``GET /api/images/{id}/why`` answers; LookupError before there is anything to explain."""
    with page.model.lock:
        pool = page.model.pool
        if pool is None or image not in pool.at:
            raise LookupError("this image is not described yet")
        learner = pool.learner
        columns = [int(learner.classes_[c]) for c in learner._columns]
        if len(columns) < 2:
            raise LookupError("there is nothing to explain before two classes have labels")
        scores = learner.beliefs_.scores()[pool.at[image]].astype(float)
        order = np.argsort(-scores, kind="stable")
        chosen = columns.index(label) if label in columns else int(order[0])
        runner_up = next(int(c) for c in order if c != chosen)
        probability = float(learner.beliefs_.probabilities()[pool.at[image], chosen])
        images, shares = learner.beliefs_.shares(learner.graph_.vectors[pool.at[image]])
        known = len(learner.labels_)
        weights = np.asarray(learner.beliefs_.classifier(), dtype=np.float64)
        graph, steps = learner.graph_, pool.steps
    values, taught = shares[:known, chosen], pool.ids[images]
    voters = [
        {"id": int(taught[i]), "label": int(page.album.label[taught[i]]), "weight": round(float(values[i]), 4)}
        for i in np.argsort(-np.abs(values), kind="stable")[:VOTERS]
    ]
    answer: dict[str, Any] = {
        "label": columns[chosen],
        "runner_up": columns[runner_up],
        "score": float(scores[chosen]),
        "base": float(scores[chosen]),
        "grid": None,
        "exact": False,
        "note": NO_GRID,
        "voters": voters,
        "probability": round(probability, 4),
    }
    chain = _chain(steps)
    if steps is None or chain is None:
        return answer
    patches = _patches(steps[0], str(inside(page.root, page.album.names[image])), len(weights))
    if patches is None:
        return answer
    chain += centred(graph.power, graph.mean.astype(np.float64))
    spoken, rest = mean_shares(patches, chain, weights[:, [chosen]])
    width, height = page.album.shape.get(image) or page.pictures.size(image)
    longest = max(width, height)
    shape = (max(1, round(GRID * height / longest)), max(1, round(GRID * width / longest)))
    grid = heat_map(patches.positions, spoken[:, 0], shape)
    cells = {"rows": shape[0], "columns": shape[1], "values": np.round(grid, 7).tolist()}
    answer |= {"base": float(rest[0]), "grid": cells, "exact": True, "note": NOTE}
    return answer


def _patches(features: DeepPatches, path: str, dimension: int) -> Any:
    """The patches whose mean is the pooled vector of an image; None where the network shows no such."""
    for output in (HEAD, "map"):
        try:
            found = DeepPatches(**{**features.get_params(), "output": output}).extract([path]).bags
        except ValueError:  # a network that has no such output
            continue
        if found.values.shape[1] == dimension:
            return found
    return None


def _chain(steps: list[Any] | None) -> list[Any] | None:
    """What a recipe does to the mean of the patches of a network; None if it does something else."""
    from patchbag.encodings.mean import MeanDescriptor

    if not steps or not isinstance(steps[0], DeepPatches) or not isinstance(steps[1], MeanDescriptor):
        return None
    chain: list[Any] = []
    for step in steps[2:]:
        more = affine_steps(step)
        if more is None:
            return None
        chain += more
    return chain
