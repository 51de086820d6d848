# SPDX-License-Identifier: BSD-3-Clause
"""The categorizer: images in, labels with probabilities out, over any recipe.

It is a scikit-learn classifier whose samples are images: paths, arrays, PIL images, bytes, or ``Bags`` that were
extracted before.  ``cross_val_score(Categorizer("words"), paths, labels)`` works, and so does
``Categorizer("fisher").set_params(recipe__statistics__mixture__n_components=32)``.

Prediction walks through the images in chunks, so that memory does not grow with their number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from patchbag.bags import Bags
from patchbag.classifiers.fusion import LateFusion
from patchbag.recipes import make_recipe
from patchbag.steps import apply_runtime

CHUNK = 256
NO_COLOR = (
    "color chooses between the pipelines of a named recipe, and this recipe is a pipeline already: set color before "
    "the parameters of the recipe, as in Categorizer('fisher', color=True)"
)


class Categorizer(ClassifierMixin, BaseEstimator):
    """Sort images into categories.

    Parameters
    ----------
    recipe : name of a recipe, or a ``Pipeline`` from images to a classifier
    color : a named recipe is also trained on colours, and both answers are averaged
    n_jobs : workers (threads or processes, as the feature prefers) that describe images; None or 1 for one, -1 for all
        cores
    cache : keep the features of image files on disk: True for the default folder, or a path
    random_state : seed of everything random in the recipe, but for steps whose own seed was set

    Attributes
    ----------
    classes_ (C,) : the labels
    recipe_ : the fitted pipeline
    seconds_ : time spent in each step of the training

    >>> categorizer = Categorizer("fisher").fit(paths, labels)          # doctest: +SKIP
    >>> categorizer.predict_proba(["new.jpg"])                          # doctest: +SKIP
    """

    def __init__(
        self,
        recipe: str | Pipeline = "fisher",
        *,
        color: bool = False,
        n_jobs: int | None = None,
        cache: Any = None,
        random_state: Any = 0,
    ) -> None:
        self.recipe = recipe
        self.color = color
        self.n_jobs = n_jobs
        self.cache = cache
        self.random_state = random_state

    def fit(self, images: Sequence[Any], labels: Any) -> Self:
        """Train on images and their labels."""
        if isinstance(images, str | os.PathLike):
            raise ValueError(
                f"expected a list of images, got {str(images)!r}; the paths and labels of a folder are what "
                "patchbag.datasets.open_folder(folder) gives"
            )
        labels = np.asarray(labels)
        if labels.ndim != 1:
            raise ValueError(f"expected one label an image, got labels of shape {labels.shape}")
        unknown = [i for i, label in enumerate(labels.tolist()) if label is None or label != label]
        if unknown:
            raise ValueError(f"image {unknown[0]} of {len(labels)} has no label; train on those that have one")
        n = len(images)
        if n != len(labels):
            raise ValueError(f"{n} images but {len(labels)} labels")
        if n == 0:
            raise ValueError("no images to train on")
        pipeline = apply_runtime(self.pipeline(), n_jobs=self.n_jobs, cache=self.cache, random_state=self.random_state)
        # the steps one by one, as Pipeline.fit does, to know where the time goes
        self.seconds_ = {}
        data: Any = images
        for name, step in pipeline.steps:
            started = time.perf_counter()
            if name == pipeline.steps[-1][0]:
                step.fit(data, labels)
            elif not (isinstance(data, Bags) and name == "features"):
                data = (
                    step.fit(data, labels).transform(data) if name == "features" else step.fit_transform(data, labels)
                )
            self.seconds_[name] = time.perf_counter() - started
        self.recipe_ = pipeline
        self.classes_ = pipeline.classes_
        return self

    def pipeline(self) -> Pipeline:
        """The unfitted pipeline of the recipe, without the steps that are "passthrough"."""
        if isinstance(self.recipe, str):
            return make_recipe(self.recipe, self.color)
        pipeline = clone(self.recipe)
        last, classifier = pipeline.steps[-1]
        if classifier is None or isinstance(classifier, str):
            raise ValueError(f"the last step of a recipe, here {last!r}, must be a classifier, got {classifier!r}")
        if self.color and not isinstance(classifier, LateFusion):
            raise ValueError(NO_COLOR)
        pipeline.steps = [(name, step) for name, step in pipeline.steps if step not in (None, "passthrough")]
        return pipeline

    def _apply(self, method: str, images: Sequence[Any], seconds: dict[str, float] | None = None) -> np.ndarray:
        check_is_fitted(self, "recipe_")
        apply_runtime(self.recipe_, n_jobs=self.n_jobs, cache=self.cache)
        if len(images) == 0:
            raise ValueError("no images to predict")
        parts = []
        for start in range(0, len(images), CHUNK):
            data: Any = images[start : start + CHUNK]
            for name, step in self.recipe_.steps:
                started = time.perf_counter()
                if step is self.recipe_.steps[-1][1]:
                    parts.append(getattr(step, method)(data))
                elif not (isinstance(data, Bags) and name == "features"):
                    data = step.transform(data)
                if seconds is not None:
                    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started
        return np.concatenate(parts)

    def predict(self, images: Sequence[Any]) -> np.ndarray:
        """(n,) label of each image."""
        return self._apply("predict", images)

    def predict_proba(self, images: Sequence[Any], seconds: dict[str, float] | None = None) -> np.ndarray:
        """(n, C) calibrated probability of each class, in the order of ``classes_``.

        The time of each step is added to ``seconds``, where given.
        """
        return self._apply("predict_proba", images, seconds)

    def decision_function(self, images: Sequence[Any]) -> np.ndarray:
        """(n, C) scores of the classes, (n,) where there are two."""
        return self._apply("decision_function", images)

    # --- parameters ----------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; with ``deep`` those of the recipe's steps too, as ``recipe__step__parameter``."""
        params = super().get_params(deep=deep)
        if deep and isinstance(self.recipe, str):
            inner = make_recipe(self.recipe, self.color).get_params(deep=True)
            params.update({f"recipe__{k}": v for k, v in inner.items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; setting one of a named recipe's turns the name into its pipeline.

        After that ``color``, a choice between two pipelines of one name, cannot be changed any more.
        """
        if params.get("color", self.color) != self.color and not isinstance(params.get("recipe", self.recipe), str):
            raise ValueError(NO_COLOR)
        for name in ("recipe", "color"):  # first, for the names of the others depend on them
            if name in params:
                setattr(self, name, params.pop(name))
        if isinstance(self.recipe, str) and any(k.startswith("recipe__") for k in params):
            self.recipe = make_recipe(self.recipe, self.color)
        return super().set_params(**params)

    # --- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the trained categorizer to one file (see :mod:`patchbag.storage`)."""
        from patchbag import storage

        check_is_fitted(self, "recipe_")
        return storage.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A categorizer that :meth:`save` wrote; nothing in the file is executed."""
        from patchbag import storage

        obj = storage.load(path)
        if not isinstance(obj, cls):
            raise storage.ModelFileError(f"{path} holds a {type(obj).__name__}, not a {cls.__name__}")
        return obj
