# SPDX-License-Identifier: BSD-3-Clause
"""What images can be searched by: named representations, each a few lines.

A representation has one or more parts.  A part takes a feature of ``stages.FEATURES``, encodes each image by steps that
are learned on the collection (a universal mixture and Fisher vectors, for example), and reduces the encodings to
vectors of unit length (:mod:`patchbag.search.axes`); the vectors of several parts stand side by side, equally long.
Images are compared by the angle of their vectors, (``metric="kl"``) their histograms by Kullback-Leibler, (``"klk"``,
``"ppk"``) their adapted mixtures, or (``"smp"``) their patches as sets, without vectors.

``REPRESENTATIONS`` takes new ones: ``REPRESENTATIONS["mine"] = Representation("mine", "…", (Part("sift", steps),))``.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

Steps = list[tuple[str, Any]]


@dataclass(frozen=True)
class Part:
    """A feature and how it becomes one vector per image.

    ``steps`` make an encoding (n, width) of bags and are fitted on the collection; None takes the one descriptor that a
    network pools an image to, after a square root that tames its large numbers.  ``dimension`` of the principal axes
    are kept, None for all; ``power`` of their deviations divides them.
    """

    features: str
    steps: Callable[[], Steps] | None = None
    dimension: int | None = None
    power: float = 0.0


@dataclass(frozen=True)
class Representation:
    """Parts, and how their vectors are compared."""

    name: str
    summary: str
    parts: tuple[Part, ...]
    metric: Literal["cosine", "kl", "klk", "ppk", "smp"] = "cosine"
    version: int = 1  # counts up when the same name begins to give other vectors
    diffuse: bool = False  # whether results are ranked by diffusion unless told otherwise

    def require_angles(self) -> None:
        """ValueError unless images are compared by the angles of vectors, as diffusion and expansion do."""
        if self.metric != "cosine":
            raise ValueError(f"images by {self.name!r} have no angles for diffusion or expansion to follow")


def _steps(name: str, *sizes: int, **named: int) -> Steps:
    """What a function of :mod:`patchbag.stages`, imported only now, makes of these sizes."""
    from patchbag import stages

    made: Steps = getattr(stages, name)(*sizes, **named)
    return made


DEEP = Part("deep-pooled")
AXES = 128
SIFT = Part("sift", partial(_steps, "fisher", 64, 64), AXES)
COLOR = Part("color", partial(_steps, "fisher", 64, 32), AXES)
VLAD = Part("sift", partial(_steps, "vlad"), AXES)
WORDS = Part("sift", partial(_steps, "words"))
MIXTURES = Part("sift", partial(_steps, "adapted_mixtures", largest=64))

REPRESENTATIONS: dict[str, Representation] = {
    one.name: one
    for one in (
        Representation("deep", "what is in the image: pooled vectors of a network", (DEEP,), version=2),
        Representation(
            "fisher", "gradients and colours of patches: Fisher vectors of both", (SIFT, COLOR), diffuse=True
        ),
        Representation("sift", "gradients of patches: Fisher vectors", (SIFT,), diffuse=True),
        Representation("color", "colours of patches: Fisher vectors", (COLOR,), diffuse=True),
        Representation("vlad", "gradients of patches: VLAD", (VLAD,), diffuse=True),
        Representation("smp", "multiscale patches: sets under KL by nearest neighbours", (Part("smp"),), "smp"),
        Representation("klk", "gradients of patches: adapted mixtures under KL", (MIXTURES,), "klk"),
        Representation("ppk", "gradients of patches: product kernel of adapted mixtures", (MIXTURES,), "ppk"),
        Representation("words", "gradients of patches: histograms of words under KL", (WORDS,), "kl"),
    )
}


def find_representation(name: str) -> Representation:
    """The representation of that name; ValueError with a hint where there is none."""
    if name not in REPRESENTATIONS:
        close = difflib.get_close_matches(name, REPRESENTATIONS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(REPRESENTATIONS)}"
        raise ValueError(f"images cannot be searched by {name!r}; {hint}")
    return REPRESENTATIONS[name]
