# SPDX-License-Identifier: BSD-3-Clause
"""What those of scikit-learn's classes consist of that a model file may hold; see :mod:`patchbag.storage.declared`."""

from typing import Any

from patchbag.storage.declared import (
    Declared,
    Either,
    Many,
    Number,
    Pair,
    Part,
    Shape,
    Sizes,
    boolean,
    floats,
    integer,
    integers,
    labels,
    size,
)

LINEAR: dict[str, Declared] = {
    "classes_": labels(),
    "coef_": floats("machines", "d"),
    "intercept_": floats("machines"),
    "n_features_in_": size("d"),
    "n_iter_": Either((integer(low=0), integers("runs")), optional=True),
}
FOREIGN: dict[str, dict[str, Declared]] = {
    "FrozenEstimator": {"estimator": Part(methods=("fit",))},
    "LinearSVC": LINEAR,
    "LogisticRegression": LINEAR,
    "NearestNeighbors": {},  # as the search of a classifier, which fits it anew
    "Pipeline": {"steps": Many(Pair(Part(methods=("fit",), optional=True, fitted=False)), low=1)},
    "SVC": {
        "classes_": labels(),
        "support_": integers("vectors", low=0),
        "support_vectors_": floats("rows", "columns"),
        "dual_coef_": floats("others", "vectors"),
        "_dual_coef_": floats("others", "vectors"),
        "intercept_": floats("pairs"),
        "_intercept_": floats("pairs"),
        "_n_support": integers("C", low=0),
        "_probA": floats("pairs_a"),
        "_probB": floats("pairs_b"),
        "_gamma": Number("float", low=0),
        "_sparse": boolean(),
        "_effective_probability": boolean(optional=True),
        "class_weight_": floats("C", low=0),
        "shape_fit_": Shape(("n", "d")),
        "n_features_in_": size("d"),
        "fit_status_": integer(optional=True),
        "n_iter_": integers("pairs", optional=True),
    },
    "StandardScaler": {
        "mean_": floats("d", nullable=True),
        "var_": floats("d", low=0, nullable=True),
        "scale_": floats("d", nullable=True),
        "n_features_in_": size("d"),
        "n_samples_seen_": Either((Number("float", low=0), integers("d")), optional=True),
    },
}


def check_foreign(name: str, values: dict[str, Any], sizes: Sizes) -> str | None:
    """What is wrong with the values of an object of one of these classes, beyond what each of them may be."""
    if name == "Pipeline":
        inner = [step for _, step in values["steps"][:-1] if step not in (None, "passthrough")]
        idle = next((step for step in inner if not hasattr(step, "transform")), None)
        return None if idle is None else f"its step {type(idle).__name__} is not the last and has no transform"
    if name == "StandardScaler" and "d" in sizes:
        needed = {"mean_": values["with_mean"], "var_": values["with_std"], "scale_": values["with_std"]}
        missing = next((key for key, asked in needed.items() if asked and values.get(key) is None), None)
        return missing and f"its {missing} is missing"
    if name == "SVC" and "C" in sizes and not _svc_is_sound(values, sizes):
        return "its arrays do not fit together"
    return None


def _svc_is_sound(values: dict[str, Any], sizes: Sizes) -> bool:
    """Whether the arrays of a saved SVC fit together; they are handed to libsvm as they are."""
    classes, vectors = sizes["C"], sizes["vectors"]
    precomputed = values["kernel"] == "precomputed"
    likely = values.get("probability") is True or values.get("_effective_probability") is True
    return (
        isinstance(values["kernel"], str)
        and not values["_sparse"]
        and classes >= 2
        and sizes["others"] == classes - 1
        and sizes["pairs"] == classes * (classes - 1) // 2
        and int(values["_n_support"].sum()) == vectors
        and int(values["support_"].max(initial=-1)) < sizes["n"]
        and (sizes["columns"] == 0 if precomputed else (sizes["rows"], sizes["columns"]) == (vectors, sizes["d"]))
        and sizes["pairs_a"] == sizes["pairs_b"] == (sizes["pairs"] if likely else 0)
    )
