# SPDX-License-Identifier: BSD-3-Clause
"""The categorizer: images in, labels with probabilities out, over any recipe.

It is a scikit-learn classifier whose samples are images: paths, arrays, PIL images, bytes, or ``Bags`` that were
extracted before.  ``cross_val_score(Categorizer("words"), paths, labels)`` works, and so does
``Categorizer("fisher").set_params(recipe__statistics__mixture__n_components=32)``.

A recipe is an ordinary scikit-learn ``Pipeline``; prediction walks through the images in chunks, so that memory does
not grow with their number.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from patchbag.classifiers.confidence.left_out import SaysHowSure
from patchbag.classifiers.confidence.usual_bags import UsualBags, either
from patchbag.classifiers.gaussian_process.condensed import condensed
from patchbag.classifiers.targets import as_labels
from patchbag.features.extraction import as_images
from patchbag.memory import CHUNK, predict_in_chunks
from patchbag.parameters import estimator, parameter
from patchbag.recipes import make_recipe
from patchbag.records import is_label, label_list, require_finite
from patchbag.runtime import runtime_context
from patchbag.storage.declared import Declared, Part, labels

FIXED_FEATURES = (
    "features chooses those of a named recipe, and this recipe is a pipeline already: set features before the "
    "parameters of the recipe, as in Categorizer('fisher', features='color')"
)


class Judgement(NamedTuple):
    """What is said of n images: ``probabilities (n, C)``, ``sets (n, C)`` of classes, ``typicality (n,)``."""

    probabilities: np.ndarray
    sets: np.ndarray
    typicality: np.ndarray


@estimator
class Categorizer(ClassifierMixin, BaseEstimator):
    """Sort images into categories.

    Parameters
    ----------
    recipe : name of a recipe, or a ``Pipeline`` from images to a classifier
    features : one or several names of features in place of those of a named recipe, such as "color"
    n_jobs : workers; None for those of joblib's context, -1 for all cores
    random_state : seed of everything random in the recipe, but for steps whose own seed was set
    condense : where answers are sums over training vectors (``auto``, ``deep-gp``, ``gp-fisher``), keep the sums alone;
        False keeps the vectors, for variances and for what single training images say

    Attributes
    ----------
    classes_ (C,) : the labels
    recipe_ : the fitted pipeline
    usual_ : what the descriptors of the training images are like

    >>> categorizer = Categorizer("fisher").fit(paths, labels)          # doctest: +SKIP
    >>> categorizer.predict_proba(["new.jpg"])                          # doctest: +SKIP
    """

    recipe: str | Pipeline = parameter(default="auto")
    _: KW_ONLY
    features: str | Sequence[str] | None = parameter(default=None)
    n_jobs: int | None = parameter(default=None)
    random_state: Any = parameter(default=0)
    condense: bool = parameter(default=True)

    _stored: ClassVar[dict[str, Declared]] = {
        "recipe_": Part("Pipeline"),
        "classes_": labels(),
        "usual_": Part("UsualBags", optional=True),
    }

    def fit(self, images: Sequence[Any], labels: Any) -> Self:
        """Train on images and their labels; None for images without one, where the recipe learns from these too."""
        images = as_images(images)
        if labels is None:
            raise ValueError("expected a label per image, got None; for images without labels take ImageClusters")
        labels = label_list(labels)
        known = [label for label in labels if is_label(label)]
        as_labels(known if self.takes_unlabelled else labels)
        labels = np.asarray(labels, dtype=object if len(known) < len(labels) else None)
        if labels.ndim != 1:
            raise ValueError(f"expected one label per image, got labels of shape {labels.shape}")
        if len(images) != len(labels):
            raise ValueError(f"{len(images)} images but {len(labels)} labels")
        if len(images) == 0:
            raise ValueError("no images to train on")
        with runtime_context(n_jobs=self.n_jobs, seed=self.random_state):
            pipeline = self.pipeline()
            described = pipeline[0].fit(images, labels).transform(images)
            self.recipe_ = pipeline.fit(described, labels)
            if self.condense:
                self.recipe_ = condensed(self.recipe_)
            self.usual_ = UsualBags.from_bags(described)
        self.classes_ = self.recipe_.classes_
        return self

    @property
    def takes_unlabelled(self) -> bool:
        """Whether images without a label, None, can take part in ``fit``."""
        return getattr(self.pipeline()[-1], "takes_unlabelled", False)

    def pipeline(self) -> Pipeline:
        """The unfitted pipeline of the recipe."""
        if isinstance(self.recipe, str):
            return make_recipe(self.recipe, self.features)
        last, classifier = self.recipe.steps[-1]
        if classifier is None or isinstance(classifier, str):
            raise ValueError(f"the last step of a recipe, here {last!r}, must be a classifier, got {classifier!r}")
        if self.features is not None:
            raise ValueError(FIXED_FEATURES)
        return clone(self.recipe)

    def _apply(self, method: str, images: Sequence[Any]) -> np.ndarray:
        check_is_fitted(self, "recipe_")
        images = as_images(images)
        if len(images) == 0:
            raise ValueError("no images to predict")
        with runtime_context(n_jobs=self.n_jobs):
            return predict_in_chunks(self.recipe_, method, images)

    def predict(self, images: Sequence[Any]) -> np.ndarray:
        """(n,) label of each image."""
        return self._apply("predict", images)

    def predict_proba(self, images: Sequence[Any]) -> np.ndarray:
        """(n, C) calibrated probability of each class, in the order of ``classes_``."""
        return self._apply("predict_proba", images)

    def decision_function(self, images: Sequence[Any]) -> np.ndarray:
        """(n, C) scores of the classes, (n,) where there are two."""
        return self._apply("decision_function", images)

    def predict_set(self, images: Sequence[Any], coverage: float = 0.9) -> np.ndarray:
        """(n, C) bool, for each image a set of classes that contains the true one with probability ``coverage``."""
        return self.judge(images, coverage).sets

    def typicality(self, images: Sequence[Any]) -> np.ndarray:
        """(n,) p-value of belonging to the classes seen in training; small for an image unlike all of them."""
        return self.judge(images).typicality

    def judge(self, images: Sequence[Any], coverage: float = 0.9) -> Judgement:
        """Probabilities, sets and typicality from one pass over the images.

        A classifier that has no sets gives all classes, one without typicality the value 1.
        """
        check_is_fitted(self, "recipe_")
        images = as_images(images)
        features, steps, classifier = self.recipe_[0], self.recipe_[1:-1], self.recipe_[-1]
        sure = isinstance(classifier, SaysHowSure)
        usual = getattr(self, "usual_", None)  # models of version 0.1 have none
        parts = []
        with runtime_context(n_jobs=self.n_jobs):
            for start in range(0, len(images), CHUNK):
                described = features.transform(images[start : start + CHUNK])
                rows = steps.transform(described) if len(steps) else described
                p = classifier.predict_proba(rows)
                sets = classifier.predict_set(rows, coverage) if sure else np.ones_like(p, dtype=bool)
                typical = classifier.typicality(rows) if sure else np.ones(len(p))
                if usual is not None:
                    typical = either(typical, usual.typicality(described))
                parts.append((require_finite(p, "the probabilities", "the model is damaged"), sets, typical))
        if not parts:
            raise ValueError("no images to predict")
        return Judgement(*map(np.concatenate, zip(*parts)))

    # --- parameters ----------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; with ``deep`` those of the recipe's steps too, as ``recipe__step__parameter``."""
        params = super().get_params(deep=deep)
        if deep and isinstance(self.recipe, str):
            inner = make_recipe(self.recipe, self.features).get_params(deep=True)
            params.update({f"recipe__{k}": v for k, v in inner.items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; setting one of a named recipe's turns the name into its pipeline, on its features."""
        for name in ("recipe", "features"):  # first, for the names of the others depend on them
            if name in params:
                setattr(self, name, params.pop(name))
        if isinstance(self.recipe, str) and any(k.startswith("recipe__") for k in params):
            self.recipe, self.features = make_recipe(self.recipe, self.features), None
        return super().set_params(**params)

    # --- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the trained categorizer to one file (see :mod:`patchbag.storage.models`)."""
        from patchbag.storage import models as storage

        check_is_fitted(self, "recipe_")
        return storage.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A categorizer that :meth:`save` wrote; nothing in the file is executed."""
        from patchbag.storage import models as storage

        obj = storage.load(path)
        if not isinstance(obj, cls):
            raise storage.ModelFileError(f"{path} holds a {type(obj).__name__}, not a {cls.__name__}")
        return obj
