# SPDX-License-Identifier: BSD-3-Clause
"""Names and the classes they stand for: one list for ``import patchbag``, model files and recipes.

Public names are those of ``__init__.pyi``, which type checkers read too.  What a model consists of besides (posteriors,
bins, combinations of kernels) is marked :func:`storable` where it is defined, and so is a class of a user's own: the
module that defines it has to be imported before a model that names it is loaded.  Nothing else can be named in a file.
"""

from importlib import import_module
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

_STORABLE: dict[str, type] = {}

# scikit-learn's, which recipes are made of
_FOREIGN = {
    "FrozenEstimator": "sklearn.frozen",
    "LinearSVC": "sklearn.svm",
    "SVC": "sklearn.svm",
    "LogisticRegression": "sklearn.linear_model",
    "NearestNeighbors": "sklearn.neighbors",
    "Pipeline": "sklearn.pipeline",
    "StandardScaler": "sklearn.preprocessing",
}

# names in files of earlier versions
_RENAMED = {
    "GaussianProcessCategorizer": "GaussianProcessClassifier",
    "LDAFisher": "LDAFisherVector",
    "LateFusion": "LateFusionClassifier",
    "PLSAFisher": "PLSAFisherVector",
    "PolyaEncoding": "PolyaVector",
    "SparseLogistic": "SparseLogisticClassifier",
}


def storable(cls: C) -> C:
    """Let a class be part of model files, under its own name.

    >>> @storable
    ... class Mine: ...
    >>> find_class("Mine") is Mine
    True
    """
    _STORABLE[cls.__name__] = cls
    return cls


class Storable:
    """Base of bases: every subclass can be part of model files, a user's own too."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        storable(cls)


def find_class(name: str) -> type | None:
    """The class of that name, or None where no model may consist of it."""
    import patchbag

    name = _RENAMED.get(name, name)
    if name in _STORABLE:
        return _STORABLE[name]
    if name in _FOREIGN:
        return getattr(import_module(_FOREIGN[name]), name)
    found = getattr(patchbag, name, None) if name in dir(patchbag) else None
    # the other public classes open folders and files when they are made
    stored = name in _STORABLE or hasattr(found, "get_params") or hasattr(found, "_stored")
    return found if isinstance(found, type) and stored else None
