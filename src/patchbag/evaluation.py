# SPDX-License-Identifier: BSD-3-Clause
"""How good a model is: trained and tested on splits of a dataset, with what a person wants to know of it.

``evaluate(model, X, labels, cv=PerClassSplit(100))`` serves the command line, published tables, VOC and studies of
kernel matrices alike.  X is whatever the model takes: images, ``Bags`` or ``Channels`` that were described before, or
kernels between all images, of which rows and columns are cut.  Split i runs with the seed ``seed + i``: what is random
in a model differs between splits and is the same when run again.

Besides the mean per-class accuracy a split records the confusion matrix, how well the stated probabilities agree with
the truth, and where the time went.  Labels of shape (n, C), 1 for a class that an image shows, -1 for one that it does
not and 0 for a difficult one, are scored by average precision instead (VOC).

``compare`` evaluates several models on the same splits; what they have in common is computed once (``memory``).
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import confusion_matrix, log_loss, recall_score
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, get_tags

from patchbag.classifiers.prototypes.leveraged import LeveragedNeighbors
from patchbag.classifiers.prototypes.witnesses import deciding_images, kept_images
from patchbag.classifiers.targets import as_labels
from patchbag.memory import StepMemory, content_key, figure_key, predict_in_chunks
from patchbag.metrics import average_precision, calibration_error, mean_class_accuracy, reliability_table
from patchbag.runtime import runtime_context

MISTAKES_KEPT = 200
LEAST_OF_GROUP = 10  # images of a group of the reliability table
EXPLAINED = 24  # mistakes whose voters are looked up
PARAMETERS_LEFT_OUT = ("memory", "verbose", "transform_input")


@dataclass
class SplitResult:
    """What one split showed; accuracies (with several labels per image: average precisions) are fractions."""

    seed: int
    accuracy: float
    per_class: dict[str, float]
    n_train: int
    n_test: int
    confusion: list[list[int]] = field(default_factory=list)
    calibration_error: float = float("nan")
    log_loss: float = float("nan")
    seconds: dict[str, float] = field(default_factory=dict)
    weights: list[float] | None = None
    prototypes: list[dict[str, Any]] | None = None


@dataclass
class Evaluation:
    """All splits; ``splits`` are in the order of their seeds.

    ``describing`` is the time in seconds that went into the features of all images before the first split, ``command``
    what was typed.
    """

    recipe: str
    classes: list[str]
    parameters: dict[str, Any]
    protocol: str = ""
    splits: list[SplitResult] = field(default_factory=list)
    mistakes: list[dict[str, Any]] = field(default_factory=list)
    reliability: list[dict[str, float]] = field(default_factory=list)
    describing: float = 0.0
    command: str = ""
    confidence: list[np.ndarray] = field(default_factory=list, repr=False)

    @property
    def mean_accuracy(self) -> float:
        return float(np.mean([s.accuracy for s in self.splits]))

    @property
    def std_accuracy(self) -> float:
        """Standard deviation over splits (n − 1 in the denominator); 0 for a single split."""
        values = [s.accuracy for s in self.splits]
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0

    @property
    def confusion(self) -> np.ndarray:
        """(C, C) counts over all splits, true classes in rows."""
        return np.sum([s.confusion for s in self.splits], axis=0)

    def seconds(self) -> dict[str, float]:
        """Time by step over all splits, that of describing the images first where it is known, and the total."""
        spent = {"describe images": self.describing} if self.describing else {}
        for split in self.splits:
            for name, value in split.seconds.items():
                spent[name] = spent.get(name, 0.0) + value
        return {**spent, "total": sum(spent.values())}

    def images_per_second(self) -> float:
        """Images of a split by the time that they take: to be described, and to train and test once."""
        images = np.mean([s.n_train + s.n_test for s in self.splits])
        once = (self.seconds()["total"] - self.describing) / len(self.splits)
        return float(images / max(self.describing + once, 1e-9))

    def add(self, split: SplitResult, mistakes: Sequence[dict[str, Any]] = (), confidence: Any = None) -> None:
        """One more split, with its surest mistakes and ``confidence (n, 3)``: stated probability, right or not, and
        the number of the image.
        """
        self.splits.append(split)
        self.mistakes = sorted([*self.mistakes, *mistakes], key=lambda m: -m["probability"])[:MISTAKES_KEPT]
        if confidence is not None:
            self.confidence.append(np.asarray(confidence, dtype=float))
            self.reliability = reliability_table(*np.concatenate(self.confidence).T, least=LEAST_OF_GROUP)

    def to_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "mean_accuracy": self.mean_accuracy,
            "std_accuracy": self.std_accuracy,
            "splits": [{k: v for k, v in asdict(s).items() if v is not None} for s in self.splits],
            "seconds": self.seconds(),
            "images_per_second": self.images_per_second(),
            "parameters": self.parameters,
            "classes": self.classes,
            "confusion": self.confusion.tolist(),
            "reliability": self.reliability,
            "mistakes": self.mistakes,
        }


def evaluate(model: Any, X: Any, labels: Any, *, cv: Any, **options: Any) -> Evaluation:
    """Train and test a model on every split; the options are those of :func:`compare`.

    Parameters
    ----------
    model : a classifier, pipeline or ``Categorizer``; it is cloned
    X : n images, bags, channels, vectors, or kernels between all n images for a model that takes such
    labels : (n,) one label per image, or (n, C) of 1, 0 and -1
    cv : a splitter such as ``PerClassSplit``, a number of folds, or a list of (training indices, test indices)
    """
    return compare({"": model}, X, labels, cv=cv, **options)[""]


def compare(
    models: Mapping[str, Any],
    X: Any,
    labels: Any,
    *,
    cv: Any,
    seed: int = 0,
    names: Sequence[str] | None = None,
    probabilities: bool = True,
    pool: bool = False,
    journal: MutableMapping[str, dict[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Evaluation]:
    """Evaluate several models on the same splits.

    Parameters
    ----------
    models : {name: model}
    X : one dataset for all models, or {name: dataset}
    labels, cv : see :func:`evaluate`
    seed : split i runs with the seed ``seed + i``
    names : of the images, for the list of mistakes
    probabilities : False asks the models for classes alone, and says nothing of how sure they are
    pool : test images take part in training without their labels, where a model learns from such
    journal : figures found before, by what they depend on; a split that is in it is not run again
    progress : told what is being done
    """
    labels = as_labels(labels)
    given = X if isinstance(X, Mapping) else dict.fromkeys(models, X)
    check_consistent_length(*given.values(), labels)
    contents = {id(data): content_key(data) for data in given.values()} if journal is not None else {}
    pipelines = {name: _as_pipeline(model) for name, model in models.items()}
    cv = check_cv(cv, labels, classifier=True) if isinstance(cv, int) else cv
    splits = list(cv.split(np.zeros(len(labels)), labels)) if hasattr(cv, "split") else list(cv)
    classes = [str(c) for c in (np.unique(labels) if labels.ndim == 1 else range(labels.shape[1]))]
    results = {
        name: Evaluation(recipe_name(model), classes, json_parameters(model), str(cv)) for name, model in models.items()
    }
    for i, (train, test) in enumerate(splits):
        memory = StepMemory(pipelines)
        for name in memory.order():
            what = f"split {i + 1} of {len(splits)}" + (f": {name}" if name else "")
            content = contents.get(id(given[name]))
            key = figure_key(clone(pipelines[name]), content, labels, train, test, seed + i, pool)
            found = None if journal is None else journal.get(key)
            if found is None:
                progress(what)
                with runtime_context(seed=seed + i):
                    found = _run_split(memory, name, given[name], labels, train, test, names, probabilities, pool)
                found["split"]["seed"] = seed + i
                if journal is not None:
                    journal[key] = found
                progress(f"{what}: {100 * found['split']['accuracy']:.2f} %")
            results[name].add(SplitResult(**found["split"]), found["mistakes"], found["confidence"])
            memory.release(name)
    return results


def _as_pipeline(model: Any) -> Pipeline:
    if isinstance(model, str):
        raise ValueError(f"expected a model, got {model!r}; that of a recipe is Categorizer({model!r})")
    model = model.pipeline() if hasattr(model, "pipeline") else clone(model)
    return model if isinstance(model, Pipeline) else Pipeline([("classifier", model)])


def _run_split(
    memory: StepMemory,
    name: str,
    X: Any,
    labels: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    names: Sequence[str] | None,
    probabilities: bool,
    pool: bool,
) -> dict[str, Any]:
    """What :meth:`Evaluation.add` takes, as plain numbers and lists."""
    model = memory.pipeline(name)
    pairwise = get_tags(model[-1]).input_tags.pairwise and len(model) == 1  # kernels between all images are given
    rows, queries = (_cut(X, part)[:, train] if pairwise else _cut(X, part) for part in (train, test))
    given, truth = labels[train], labels[test]
    if pool and getattr(model[-1], "takes_unlabelled", False):
        rows = _cut(X, np.concatenate([train, test]))
        given = np.concatenate([given.astype(object), np.full(len(test), None)])
    several = labels.ndim == 2
    method = "decision_function" if several else "predict_proba" if probabilities else "predict"
    with memory.steps_and_rest("train classifier") as training:
        model.fit(rows, given)
    with memory.steps_and_rest("test classifier") as testing:
        said = predict_in_chunks(model, method, queries)
    seconds = training | testing
    if several:
        split = score_rankings(truth, said, len(train), seconds)
        return {"split": asdict(split), "mistakes": [], "confidence": None}
    classes = np.asarray(model.classes_)
    split = score_classes(truth, said, [str(c) for c in classes], len(train), seconds)
    weights = getattr(model[-1], "weights_", None)
    split.weights = None if weights is None else np.asarray(weights).tolist()
    mistakes, confidence = [], None
    if probabilities:
        right = classes[said.argmax(axis=1)] == truth
        confidence = np.stack([said.max(axis=1), right, test], axis=1).tolist()
    if probabilities and names is not None:
        mistakes = confident_mistakes(truth, classes, said, [names[i] for i in test])
        if isinstance(model[-1], LeveragedNeighbors):
            known = [names[i] for i in train]
            split.prototypes = kept_images(model[-1], known)
            wrong = _cut(queries, surest_wrong(truth, classes, said)[:EXPLAINED])
            for mistake, voters in zip(mistakes, deciding_images(model, wrong, known)):
                mistake["voters"] = voters
    return {"split": asdict(split), "mistakes": mistakes, "confidence": confidence}


def _cut(X: Any, index: np.ndarray) -> Any:
    return [X[i] for i in index] if isinstance(X, list | tuple) else X[index]


def score_classes(
    truth: np.ndarray, said: np.ndarray, classes: list[str], n_train: int, seconds: dict[str, float]
) -> SplitResult:
    """Figures of one split, from predicted classes (n,) or from probabilities (n, C)."""
    truth = truth.astype(str)
    guess = said.astype(str) if said.ndim == 1 else np.asarray(classes)[said.argmax(axis=1)]
    recall = recall_score(truth, guess, labels=classes, average=None, zero_division=0.0)
    split = SplitResult(
        seed=0,
        accuracy=mean_class_accuracy(truth, guess),
        per_class=dict(zip(classes, recall.tolist())),
        n_train=n_train,
        n_test=len(truth),
        confusion=confusion_matrix(truth, guess, labels=classes).tolist(),
        seconds=seconds,
    )
    if said.ndim == 2:
        table = reliability_table(said.max(axis=1), truth == guess)
        split.calibration_error = calibration_error(table)
        split.log_loss = float(log_loss(truth, said.astype(np.float64), labels=classes))
    return split


def score_rankings(truth: np.ndarray, scores: np.ndarray, n_train: int, seconds: dict[str, float]) -> SplitResult:
    """Average precision of every class by its scores (n, C), difficult images (0) left out: the rule of VOC 2007."""
    values = [average_precision(t == 1, s, t == 0) for t, s in zip(truth.T, scores.T)]
    per_class = {str(i): value for i, value in enumerate(values)}
    return SplitResult(0, float(np.mean(values)), per_class, n_train, len(truth), seconds=seconds)


def surest_wrong(truth: np.ndarray, classes: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Numbers of the wrong images, surest first."""
    guess = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(classes[guess] != truth)
    return wrong[np.argsort(-probabilities[wrong, guess[wrong]], kind="stable")][:MISTAKES_KEPT]


def confident_mistakes(
    truth: np.ndarray, classes: np.ndarray, probabilities: np.ndarray, names: Sequence[str]
) -> list[dict[str, Any]]:
    """The wrong images, surest first."""
    return [
        {
            "image": names[i],
            "label": str(truth[i]),
            "predicted": str(classes[probabilities[i].argmax()]),
            "probability": float(probabilities[i].max()),
        }
        for i in surest_wrong(truth, classes, probabilities)
    ]


def recipe_name(model: Any) -> str:
    recipe = getattr(model, "recipe", None)
    return recipe if isinstance(recipe, str) else "custom"


def json_parameters(model: Any) -> dict[str, Any]:
    """Parameters that are plain values (or lists of them), by their full name."""

    def plain(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return all(plain(v) for v in value)
        return value is None or isinstance(value, bool | int | float | str)

    params = model.get_params(deep=True)
    return {k: v for k, v in sorted(params.items()) if plain(v) and k.rsplit("__", 1)[-1] not in PARAMETERS_LEFT_OUT}
