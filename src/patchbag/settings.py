# SPDX-License-Identifier: BSD-3-Clause
"""Settings that a person writes (``--set``, experiment files), checked before any work is done.

An estimator takes what it is given and stumbles over it in ``fit``, after minutes, deep inside NumPy.  So the kind of a
value is compared with the annotation of the constructor's parameter, the place where the kind is already written down:
``step: int`` takes 8 and not 8.5, ``bin_sizes: Sequence[int]`` takes [4, 8] and not 4.  Where the annotation says
nothing (``Any``, or scikit-learn's own classes), the recipe's own value says it.  Whether a value of the right kind
makes sense is for the estimator to say; only negative whole numbers are refused here, since no parameter counts below
zero but ``n_jobs`` and ``n_threads``.
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sklearn.pipeline import Pipeline

COUNTS_BELOW_ZERO = ("n_jobs", "n_threads")
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
MANY = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts"}
ABSENT = object()


def check_settings(pipeline: Any, settings: Mapping[str, Any], what: str, listing: str = "") -> None:
    """Raise ValueError unless every setting is a parameter of the pipeline and its value of that parameter's kind.

    Parameters
    ----------
    settings : {"statistics__mixture__n_components": 64}
    what : whose settings these are, for the message: "recipe 'fisher'"
    listing : the command that lists the parameters
    """
    params = pipeline.get_params(deep=True)
    for name, value in settings.items():
        shown = name.replace("__", ".")
        owner_name, _, last = name.rpartition("__")
        owner = params.get(owner_name) if owner_name else pipeline
        if not _is_setting(name, params) and not _is_part(params.get(name)):
            nearest = _nearest(shown, params)
            hint = f"; is it {nearest!r}?" if nearest else f"; {listing} lists them" if listing else ""
            raise ValueError(f"{what} has no parameter {shown!r}{hint}")
        if _is_part(params[name]):
            _check_part(owner, name, value, params)
        else:
            _check_value(owner, last, shown, value, params[name])


def _is_part(value: Any) -> bool:
    """Whether it is a step of a recipe, or a list of named ones."""
    listed = isinstance(value, list | tuple) and value and all(isinstance(v, tuple) for v in value)
    return hasattr(value, "get_params") or bool(listed)


def _is_setting(name: str, params: Mapping[str, Any]) -> bool:
    """Whether it is a value of a step; what a ``Pipeline`` has besides its steps (memory, verbose) is not."""
    owner = name.rpartition("__")[0]
    known = bool(owner) and name in params and not isinstance(params[owner], Pipeline)
    return known and not _is_part(params[name])


def _nearest(shown: str, params: Mapping[str, Any]) -> str:
    known = {k.replace("__", ".") for k in params if _is_setting(k, params)}
    close = difflib.get_close_matches(shown, known, n=1, cutoff=0.75)
    # "mixture.n_components" without its step, and steps of colour branches, differ by their beginning
    close = close or sorted(k for k in known if k.endswith(f".{shown}"))
    return close[0] if close else ""


def _check_part(owner: Any, name: str, value: Any, params: Mapping[str, Any]) -> None:
    """Whole steps are not for settings, but a step may be left out where its owner has a word for that."""
    last = name.rpartition("__")[2]
    if isinstance(owner, Pipeline):
        left_out = value == "passthrough" and last in [step for step, _ in owner.steps[1:-1]]
    elif hasattr(owner, "channels"):
        left_out = value == "drop" and last in dict(owner.channels)
    else:
        left_out = value is None and _defaults(owner).get(last, ABSENT) is None
    if left_out:
        return
    inside = [k.replace("__", ".") for k, v in params.items() if k.startswith(f"{name}__") and _is_setting(k, params)]
    hint = f"; set its parameters, such as {min(inside, key=len)}" if inside else ""
    raise ValueError(
        f"{name.replace('__', '.')!r} is a whole step, which cannot be set to {json.dumps(value, default=str)}{hint}"
    )


def _defaults(owner: Any) -> dict[str, Any]:
    """Defaults of an estimator's constructor, by parameter."""
    parameters = inspect.signature(type(owner).__init__).parameters
    return {k: p.default for k, p in parameters.items()}


def _check_value(owner: Any, last: str, shown: str, value: Any, usual: Any) -> None:
    hint = parameter_kind(owner, last, usual)
    if not is_kind(value, hint):
        kind = kind_name(hint)
        # a kind that lists its values needs no example
        listed = usual is None or '"' in kind or hint is bool
        kind += "" if listed else f", such as {json.dumps(usual, default=str)}"
        raise ValueError(f"{shown} must be {kind}; got {json.dumps(value, default=str)}")
    if isinstance(value, int) and value < 0 and last not in COUNTS_BELOW_ZERO:
        raise ValueError(f"{shown} must not be negative; got {value}")


def parameter_kind(owner: Any, name: str, usual: Any) -> Any:
    """The annotation of a constructor's parameter; where there is none, the kind of its usual value."""
    if name == "random_state":
        return int | None
    try:
        hint = typing.get_type_hints(type(owner).__init__).get(name, Any)
    except NameError:  # an annotation that only type checkers can resolve
        hint = Any
    kinds = typing.get_args(hint)
    if str in kinds and (int in kinds or float in kinds):  # a number, or the word for choosing it
        return typing.Union[tuple(Literal["auto"] if k is str else k for k in kinds)]  # noqa: UP007
    if hint is not Any or usual is None:
        return hint
    if isinstance(usual, list | tuple):
        elements = {type(v) for v in usual}
        return Sequence[elements.pop()] if len(elements) == 1 else Sequence[Any]  # type: ignore[misc]
    return type(usual)


def is_kind(value: Any, hint: Any) -> bool:
    """Whether a value read from JSON or TOML is what an annotation asks for.

    >>> is_kind(3, float), is_kind(2.5, int), is_kind(True, int), is_kind([4, 8], Sequence[int])
    (True, False, False, True)
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(is_kind(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments
    if hint in (None, type(None)):
        return value is None
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not math.isnan(value)
    if origin is not None and issubclass(origin, Sequence):
        elements = [a for a in arguments if a is not Ellipsis] or [Any]
        return isinstance(value, list | tuple) and all(is_kind(v, elements[0]) for v in value)
    return isinstance(value, hint) if isinstance(hint, type) else True


def kind_name(hint: Any) -> str:
    """What to call a kind in a message.

    >>> kind_name(int | None), kind_name(Sequence[int])
    ('a whole number or null', 'a list of whole numbers')
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(kind_name(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(json.dumps(argument) for argument in arguments)
    if origin is not None and issubclass(origin, Sequence):
        elements = arguments[0] if arguments else Any
        return f"a list of {MANY[elements]}" if elements in MANY else "a list"
    return NAMES.get(hint, getattr(hint, "__name__", str(hint)))
