# SPDX-License-Identifier: BSD-3-Clause
"""What the HTTP API answers, for its OpenAPI document; docs/page.md says it in words.

Replies are written as they are: nothing is checked against these while the page runs, but every reply is in the tests.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(Answer):
    detail: str | list[dict[str, Any]]


class Nothing(Answer):
    pass


class Class(Answer):
    id: int
    name: str
    color: str
    key: str | None
    position: int
    count: int
    predicted: int


class Classes(Answer):
    classes: list[Class]
    version: int


class ClassOpened(Classes):
    id: int


class ClassSplit(Classes):
    id: int | None = None
    parts: list[list[int]] | None = None


class ModelState(Answer):
    version: int
    n_labels: int
    pool: int
    ready: bool
    complete: bool


class State(Answer):
    folder: str
    images: int
    gone: int
    broken: int
    described: int
    describing: bool
    stage: str | None
    labelled: int
    skipped: int
    disagreements: int
    people: list[str]
    me: str
    recipe: str
    remarks: list[str]
    version: int
    classes: list[Class]
    model: ModelState
    can_undo: bool
    undo: str | None
    can_redo: bool
    redo: str | None


class Turned(Answer):
    version: int
    text: str
    ids: list[int]
    conflicts: int


class Action(Answer):
    id: int
    who: str
    when: str
    text: str
    undone: bool
    images: int


class History(Answer):
    actions: list[Action]


class Vote(Answer):
    who: str
    label: int | None
    when: str


class Image(Answer):
    id: int
    name: str
    v: str
    label: int | None
    skipped: bool
    votes: list[Vote]
    disagreement: bool
    predicted: int | None
    probability: float | None
    doubt: float | None
    width: int | None
    height: int | None
    modified: str
    size: int
    broken: str | None
    gone: bool


class Probability(Answer):
    label: int
    p: float


class ImageInFull(Image):
    probabilities: list[Probability]
    new: float


class Details(Answer):
    images: list[Image]
    thumbs: dict[str, str] = {}


class Group(Answer):
    label: int | None
    start: int
    count: int


class Listed(Answer):
    ids: list[int]
    total: int
    groups: list[Group] | None
    version: int
    model: int


class Columns(Answer):
    model: int
    ids: list[int]
    label: list[int]
    predicted: list[int]
    doubt: list[float]
    wrong: list[int]


class Changed(Answer):
    version: int
    changed: int
    action: int | None
    label: int | None


class Accuracy(Answer):
    labels: int
    expected: float
    low: float
    high: float


class Curve(Answer):
    points: list[Accuracy]


class Hint(Answer):
    stop: bool
    reason: str


class Question(Answer):
    image: Image | None
    probabilities: list[Probability]
    new: float
    why: str
    reason: Literal["doubt", "unlike", "stands"] | None
    next: list[Image]
    labels: int
    left: int
    accuracy: Accuracy | None
    hint: Hint
    model: int
    ready: bool
    stage: str | None


class Answered(Question):
    acknowledged: bool
    version: int


class Suspect(Answer):
    id: int
    label: int
    predicted: int
    p_label: float
    p_predicted: float


class Suspects(Answer):
    items: list[Suspect]
    labels: int


class Pair(Answer):
    a: int
    b: int
    count: int
    share: float
    ids: list[int]


class Confusions(Answer):
    pairs: list[Pair]
    matrix: list[list[int]]
    classes: list[int]
    labels: int


class Lonely(Answer):
    id: int
    similarity: float


class LonelyOnes(Answer):
    items: list[Lonely]


class Disagreement(Answer):
    id: int
    votes: list[Vote]


class Disagreements(Answer):
    items: list[Disagreement]


class Copies(Answer):
    ids: list[int]
    labels: list[int]
    across: bool


class Duplicates(Answer):
    ready: bool
    running: bool
    groups: list[Copies] | None = None


class Match(Answer):
    id: int
    distance: float


class Matches(Answer):
    matches: list[Match]
    by: str


class Grid(Answer):
    rows: int
    columns: int
    values: list[list[float]]


class Voter(Answer):
    id: int
    label: int
    weight: float


class Why(Answer):
    label: int
    runner_up: int | None
    score: float
    base: float
    grid: Grid | None
    exact: bool
    note: str
    voters: list[Voter]
    probability: float


class Places(Answer):
    ready: bool
    running: bool
    method: str | None = None
    ids: list[int] | None = None
    x: list[float] | None = None
    y: list[float] | None = None
    version: int | None = None


class Written(Answer):
    path: str
    labels: int


class Sorted(Answer):
    path: str
    files: int
    action: int | None


class Product(Answer):
    ready: bool
    running: bool
    error: str | None


class Products(Answer):
    model: Product
    report: Product


class TakenIn(Answer):
    labels: int
    unknown: int
    action: int | None
