# SPDX-License-Identifier: BSD-3-Clause
"""The runs of an experiment one by one, and the recipe of each with its settings."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sklearn.decomposition import NMF
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

from patchbag.classifiers.linear import LinearClassifier
from patchbag.classifiers.prototypes.multiclass import MulticlassLeveragedNeighbors
from patchbag.classifiers.prototypes.universal import UniversalNearestNeighbors
from patchbag.classifiers.sparse_logistic import SparseLogisticClassifier
from patchbag.encodings.normalize import Normalizer
from patchbag.experiments.condensed import CondensedNeighbors
from patchbag.experiments.files import ExperimentError
from patchbag.recipes import make_recipe
from patchbag.settings import check_settings
from patchbag.similarity.definite import DefiniteKernel


def metric() -> NeighborhoodComponentsAnalysis:
    """A learned metric, as a projection."""
    return NeighborhoodComponentsAnalysis(64, max_iter=50, random_state=0)


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "sparse-logistic": lambda: SparseLogisticClassifier(ignore_self=True),
    # raises where the similarity is no kernel: an SVM on it would be far off without a word
    "svm": lambda: Pipeline([("definite", DefiniteKernel("raise")), ("svm", SVC(kernel="precomputed", C=100.0))]),
    "linear": LinearClassifier,
    # only the class is asked for: nothing is calibrated
    "mlnn": lambda: MulticlassLeveragedNeighbors(11, rounds=0.5, folds=None),
    "unn": lambda: UniversalNearestNeighbors(11, rounds=0.5, folds=None),
    # partners of the boosted neighbours: all training images vote alike
    "knn": lambda: MulticlassLeveragedNeighbors(11, chooser="equal", rounds=1.0, folds=None),
    "condensed-nn": CondensedNeighbors,
    "metric-knn": lambda: Pipeline([("metric", metric()), ("knn", KNeighborsClassifier(11))]),
    "metric-mlnn": lambda: Pipeline([("metric", metric()), ("mlnn", CLASSIFIERS["mlnn"]())]),
    # nonnegative factorisation under KL is pLSA (Gaussier & Goutte 2005)
    "plsa-knn": lambda: Pipeline(
        [
            ("topics", NMF(25, beta_loss="kullback-leibler", solver="mu", init="nndsvda", tol=1e-3, random_state=0)),
            ("normalize", Normalizer(["l2"])),
            ("knn", CLASSIFIERS["knn"]()),
        ]
    ),
    "rbf-svm": lambda: SVC(C=10.0, gamma="scale"),
}


def branch_prefixes(pipeline: Pipeline) -> list[str]:
    """Prefixes of settings: none, or one for each branch of a pipeline on several features."""
    branches = getattr(pipeline[-1], "branches", None)
    return [""] if branches is None else [f"classifier__{name}__" for name, _ in branches]


def run_pipeline(run: dict[str, Any], shared: dict[str, Any]) -> Pipeline:
    """The recipe of a run with the shared settings that it has, and its own."""
    pipeline = make_recipe(run["recipe"], run.get("features"))
    if "classifier" in run:
        pipeline.steps = [*pipeline.steps[:-1], _classifier(run)]
    for prefix in branch_prefixes(pipeline):
        valid = pipeline.get_params(deep=True)
        settings = {f"{prefix}{k.replace('.', '__')}": v for k, v in shared.items()}
        settings = {k: v for k, v in settings.items() if k in valid}
        settings |= {f"{prefix}{k.replace('.', '__')}": v for k, v in run.get("settings", {}).items()}
        check_settings(pipeline, settings, f"run {run.get('name', 1)!r}: recipe {run['recipe']!r}")
        pipeline.set_params(**settings)
    if run.get("whole"):
        pipeline.steps.insert(2, ("whole", FunctionTransformer(whole_images)))
    return pipeline


def _classifier(run: dict[str, Any]) -> tuple[str, Any]:
    """The step that a run puts in place of its recipe's classifier."""
    name = run["classifier"]
    if name not in CLASSIFIERS or isinstance(run.get("features"), list):
        why = "with several features it is the recipe's" if name in CLASSIFIERS else f"of {', '.join(CLASSIFIERS)}"
        raise ExperimentError(f"run {run.get('name', 1)!r}: classifier must be one {why}, got {name!r}")
    return "classifier", CLASSIFIERS[name]()


def whole_images(statistics: Any) -> Any:
    """Statistics of the first cell of a pyramid, the whole image, without collecting them again."""
    first = {name: values[:, :1] for name, values in statistics.arrays().items()}
    return replace(statistics, **first)


def expand_runs(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of an experiment, those with ``over`` once for each of its values."""
    runs = []
    for run in spec.get("run", []):
        over = run.get("over", {})
        if len(over) > 1:
            raise ExperimentError(f"{spec['name']}: run {run['name']!r} varies {len(over)} parameters; one is possible")
        if not over:
            runs.append(run)
        for parameter, values in over.items():
            published = [None if v != v else v for v in run.get("published") or [None] * len(values)]
            for value, theirs in zip(values, published, strict=True):
                one = {"name": f"{run['name']}, {value}", "series": run["name"], "x": value, "published": theirs}
                if parameter == "train_per_class":
                    runs.append({**run, **one, parameter: value})
                else:
                    runs.append({**run, **one, "settings": {**run.get("settings", {}), parameter: value}})
    return runs
