# SPDX-License-Identifier: BSD-3-Clause
"""What the parts of a saved model look like: each class declares its arrays, and they are checked in one place.

A model file can be forged, checksum and all, and compiled loops do not look where they read and write.  So a class that
can be loaded says of every fitted attribute, or of every field of a dataclass, what it has to be::

    _stored = {                                              # of an estimator
        "coef_": floats("machines", "d"),
        "n_features_in_": size("d"),
    }

    n: int = stored(size("n"))                               # in a dataclass
    images: np.ndarray = stored(integers("entries", low=0, below="n"))

Names in shapes are unknowns: the first array in which one stands settles it, and all others have to agree; so have the
parts of a part, ``Part("GaussianParameters", K="K", D="D")``.  Declarations are inherited.  What no shape can say, a
class says in ``_check_stored(values, sizes)``.  :mod:`patchbag.storage.models` calls :func:`check_declared` when the
values of an object have been read and before the object is made.  Attributes that are not declared are not set,
except in classes of a user's own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

from patchbag.storage.registry import find_class

Sizes = dict[str, int]
KINDS = {"floats": "f", "integers": "iu", "booleans": "b", "numbers": "fiub", "labels": "Uiubf"}
NOT_ZERO = float(np.finfo(np.float64).tiny)  # the least number that is not zero for all purposes
TERM = re.compile(r"(\w+)(?: \+ (\d+))?")


class NotAsDeclaredError(ValueError):
    """A value that breaks its declaration; the message does not name the attribute yet."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A rule for one value; ``optional`` values may be None, or absent, ``nullable`` ones None."""

    optional: bool = False
    nullable: bool = False

    def check(self, value: Any, sizes: Sizes, known: Mapping[int, Sizes]) -> None:
        """Raise where the value breaks the rule; settle unknowns in ``sizes``.  ``known`` are those of parts, by id."""
        raise NotImplementedError


def settle(term: str | int, length: int, sizes: Sizes) -> bool:
    """Whether a length equals a term such as ``3``, ``"n"`` or ``"n + 1"``; an unknown n is set so that it does."""
    if isinstance(term, int):
        return length == term
    match = TERM.fullmatch(term)
    assert match is not None, term
    name, more = match[1], int(match[2] or 0)
    return sizes.setdefault(name, length - more) == length - more and length >= more


@dataclass(frozen=True)
class Array(Declared):
    """An array of a kind and shape, between ``low`` and ``high`` (a number or a size) and below ``below``."""

    kind: str
    shape: tuple[str | int, ...]
    low: float | None = None
    high: float | str | None = None
    below: float | str | None = None
    ascending: bool = False
    finite: bool = True

    def check(self, value: Any, sizes: Sizes, known: Mapping[int, Sizes]) -> None:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in KINDS[self.kind]:
            raise NotAsDeclaredError(f"should be an array of {self.kind}, is {_kind(value)}")
        if self.kind == "floats" and value.dtype.itemsize < 4:
            raise NotAsDeclaredError(f"is {value.dtype}, which is not precise enough")
        if value.ndim != len(self.shape) or not all(
            settle(term, length, sizes) for term, length in zip(self.shape, value.shape)
        ):
            wanted = ", ".join(str(sizes.get(str(term), term)) for term in self.shape)
            raise NotAsDeclaredError(f"has shape {value.shape}, expected ({wanted})")
        if self.finite and value.dtype.kind == "f" and not np.isfinite(value).all():
            raise NotAsDeclaredError("has a value that is NaN or infinite")
        _check_range(self, value, sizes)
        if self.ascending and len(value) > 1 and np.any(value[1:] < value[:-1]):
            raise NotAsDeclaredError("does not ascend")


@dataclass(frozen=True)
class Number(Declared):
    """A single number, ``"integer"``, ``"float"`` or ``"boolean"``."""

    kind: str
    low: float | None = None
    high: float | str | None = None
    below: float | str | None = None
    finite: bool = True
    is_size: str | None = None

    def check(self, value: Any, sizes: Sizes, known: Mapping[int, Sizes]) -> None:
        types: tuple[type, ...] = {"integer": (int,), "float": (int, float), "boolean": (bool,)}[self.kind]
        if not isinstance(value, int | float | bool) or not isinstance(value, types):
            raise NotAsDeclaredError(f"should be a {self.kind}, is {_kind(value)}")
        if isinstance(value, bool) and self.kind != "boolean":
            raise NotAsDeclaredError(f"should be a {self.kind}, is a bool")
        if self.finite and not isfinite(value):
            raise NotAsDeclaredError(f"is {value}")
        if self.is_size is not None and not (value >= 0 and settle(self.is_size, int(value), sizes)):
            raise NotAsDeclaredError(f"is {value}, expected {sizes.get(self.is_size, 'a number that is not negative')}")
        _check_range(self, np.asarray(value), sizes)


@dataclass(frozen=True)
class Shape(Declared):
    """A tuple of sizes."""

    terms: tuple[str, ...]

    def check(self, value: Any, sizes: Sizes, known: Mapping[int, Sizes]) -> None:
        if not isinstance(value, tuple) or len(value) != len(self.terms):
            raise NotAsDeclaredError(f"should be {len(self.terms)} sizes, is {_kind(value)}")
        for term, length in zip(self.terms, value):
            Number("integer", low=0, is_size=term).check(length, sizes, known)


class Part(Declared):
    """An object of some classes, whose own sizes are named here: ``Part("GaussianParameters", K="K")``.

    Without classes, anything with all of the ``methods``.  An estimator has to be fitted, unless ``fitted`` is False.
    """

    def __init__(
        self,
        *classes: str,
        methods: tuple[str, ...] = (),
        optional: bool = False,
        nullable: bool = False,
        fitted: bool = True,
        **named: str,
    ) -> None:
        super().__init__(optional=optional, nullable=nullable)
        self.__dict__.update(classes=classes, methods=methods, fitted=fitted, named=named)  # the base is frozen

    classes: tuple[str, ...]
    methods: tuple[str, ...]
    fitted: bool
    named: dict[str, str]

    def check(self, value: Any, sizes: Sizes, known: Mapping[int, Sizes]) -> None:
        classes = [cls for cls in map(find_class, self.classes) if cls is not None]
        if classes and not isinstance(value, tuple(classes)):
            raise NotAsDeclaredError(f"should be a {' or '.join(self.classes)}, is {_kind(value)}")
        if isinstance(value, str | type) or not all(callable(getattr(value, name, None)) for name in self.methods):
            raise NotAsDeclaredError(f"should have {', '.join(self.methods)}, is {_kind(value)}")
        bare = _unfitted(value) if self.fitted else None
        if bare is not None:
            raise NotAsDeclaredError(f"is or has a {type(bare).__name__} that is not fitted")
        own = known.get(id(value), {})
        for theirs, ours in self.named.items():
            if theirs in own and not settle(ours, own[theirs], sizes):
                raise NotAsDeclaredError(f"is a {type(value).__name__} of {theirs} = {own[theirs]}, not {sizes[ours]}")


@dataclass(frozen=True)
class Many(Declared):
    """A list of values under one rule; ``length`` is a size, at least ``low``."""

    each: Declared
    length: str | None = None
    low: int = 0

    def check(self, value: Any, sizes: Sizes, known: Mapping[int, Sizes]) -> None:
        if not isinstance(value, list | tuple) or len(value) < self.low:
            raise NotAsDeclaredError(f"should be a list of at least {self.low}, is {_kind(value)}")
        if self.length is not None and not settle(self.length, len(value), sizes):
            raise NotAsDeclaredError(f"has {len(value)} entries, expected {sizes[self.length]}")
        for one in value:
            if not (one is None and self.each.optional):
                self.each.check(one, sizes, known)


@dataclass(frozen=True)
class Pair(Declared):
    """A name and a value, as the steps of a pipeline are."""

    each: Declared

    def check(self, value: Any, sizes: Sizes, known: Mapping[int, Sizes]) -> None:
        if not isinstance(value, tuple | list) or len(value) != 2 or not isinstance(value[0], str):
            raise NotAsDeclaredError(f"should be a name and a value, is {_kind(value)}")
        if not (value[1] in (None, "passthrough") and self.each.optional):
            self.each.check(value[1], sizes, known)


@dataclass(frozen=True)
class Either(Declared):
    """A value under the first of several rules that it follows."""

    rules: tuple[Declared, ...]

    def check(self, value: Any, sizes: Sizes, known: Mapping[int, Sizes]) -> None:
        faults = []
        for rule in self.rules:
            trial = dict(sizes)
            try:
                rule.check(value, trial, known)
            except NotAsDeclaredError as fault:
                faults.append(str(fault))
            else:
                sizes.update(trial)
                return
        raise NotAsDeclaredError("; or ".join(faults))


@dataclass(frozen=True)
class Choice(Declared):
    """One of some words; any text where there are none."""

    words: tuple[str, ...] = ()

    def check(self, value: Any, sizes: Sizes, known: Mapping[int, Sizes]) -> None:
        if not isinstance(value, str) or (self.words and value not in self.words):
            raise NotAsDeclaredError(f"should be {' or '.join(self.words) or 'a text'}, is {value!r:.40}")


def floats(*shape: str | int, **rules: Any) -> Array:
    return Array("floats", shape, **rules)


def integers(*shape: str | int, **rules: Any) -> Array:
    return Array("integers", shape, **rules)


def booleans(*shape: str | int, **rules: Any) -> Array:
    return Array("booleans", shape, **rules)


def labels(name: str = "C") -> Array:
    return Array("labels", (name,))


def size(name: str, **rules: Any) -> Number:
    return Number("integer", is_size=name, **rules)


def integer(**rules: Any) -> Number:
    return Number("integer", **rules)


def real(**rules: Any) -> Number:
    return Number("float", **rules)


def boolean(**rules: Any) -> Number:
    return Number("boolean", **rules)


def steps(*methods: str) -> Many:
    """Names and estimators with these methods, or nothing in place of one."""
    return Many(Pair(Part(methods=methods, optional=True)))


def stored(rule: Declared, **options: Any) -> Any:
    """A field of a dataclass, with what it has to be in a model file."""
    return field(metadata={"stored": rule}, **options)


def declarations(cls: type) -> dict[str, Declared]:
    """What a class and its bases declare."""
    found: dict[str, Declared] = {}
    for base in reversed(cls.__mro__):
        found |= vars(base).get("_stored", {})
    own = fields(cls) if is_dataclass(cls) else ()
    return found | {f.name: f.metadata["stored"] for f in own if "stored" in f.metadata}


def _unfitted(value: Any) -> Any:
    """The value, or the step of a pipeline, that is not fitted; None where all are."""
    if type(value).__name__ == "Pipeline":
        return next((bare for _, step in value.steps if (bare := _unfitted(step)) is not None), None)
    needed = (key for key, rule in declarations(type(value)).items() if key.endswith("_") and not rule.optional)
    return None if all(hasattr(value, key) for key in needed) else value


def is_stray_boolean(value: Any, rules: Sequence[Any] | str) -> bool:
    """Whether a parameter is True or False although its rules ask for a number: Python takes both for numbers."""
    return isinstance(value, bool) and not isinstance(rules, str) and "boolean" not in rules and bool not in rules


def is_strict(cls: type) -> bool:
    """Whether attributes have to be declared: not in classes of a user's own."""
    return cls.__module__.partition(".")[0] in ("patchbag", "sklearn")


def check_declared(
    cls: type,
    params: Mapping[str, Any],
    state: Mapping[str, Any],
    known: Mapping[int, Sizes],
    rules: dict[str, Declared],
) -> Sizes:
    """The sizes of an object of these values; ValueError names the value that is not as its class says."""
    sizes: Sizes = {}
    values = {**params, **state}
    for name, rule in rules.items():
        fitted = name.endswith("_")
        if values.get(name) is None:
            if rule.optional or (rule.nullable and name in values) or (fitted and not state):
                continue
            raise ValueError(f"{cls.__name__}.{name} is missing")
        try:
            rule.check(values[name], sizes, known)
        except NotAsDeclaredError as fault:
            raise ValueError(f"{cls.__name__}.{name} {fault}") from None
    check: Callable[[dict[str, Any], Sizes], str | None] | None = getattr(cls, "_check_stored", None)
    wrong = check(values, sizes) if check is not None and (state or not hasattr(cls, "get_params")) else None
    if wrong:
        raise ValueError(f"{cls.__name__}: {wrong}")
    return sizes


def _check_range(rule: Array | Number, value: np.ndarray, sizes: Sizes) -> None:
    if not value.size or (rule.low, rule.high, rule.below) == (None, None, None):
        return
    high, below = (sizes[b] if isinstance(b, str) else b for b in (rule.high, rule.below))
    least, most = value.min(), value.max()
    if rule.low is not None and not least >= rule.low:
        raise NotAsDeclaredError(f"has a value of {least}, below {rule.low}")
    if (high is not None and not most <= high) or (below is not None and not most < below):
        raise NotAsDeclaredError(f"has a value of {most}, above {high if below is None else below}")


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    return f"a {type(value).__name__}"
