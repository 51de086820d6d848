# SPDX-License-Identifier: BSD-3-Clause
"""Settings that a person writes (``--set``, experiment files), checked before any work is done.

What a parameter may be is declared once, on its class (:mod:`patchbag.parameters`, scikit-learn's
``_parameter_constraints``); ``fit`` checks it, and so does this module, minutes earlier and with the name that the
person used.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils._param_validation import InvalidParameterError, validate_parameter_constraints

from patchbag.storage.declared import is_stray_boolean


def check_settings(pipeline: Any, settings: Mapping[str, Any], what: str, listing: str = "") -> None:
    """Raise ValueError unless every setting is a parameter of the pipeline with a valid value.

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
        if _is_part(params.get(name)):
            _check_part(owner, name, value, params)
        elif not _is_setting(name, params):
            nearest = _nearest(shown, params)
            hint = f"; is it {nearest!r}?" if nearest else f"; {listing} lists them" if listing else ""
            raise ValueError(f"{what} has no parameter {shown!r}{hint}")
        else:
            rules = getattr(owner, "_parameter_constraints", {}).get(last, "no_validation")
            check_value(shown, value, rules)


def check_value(shown: str, value: Any, rules: Sequence[Any] | str) -> None:
    """Raise ValueError unless a value follows rules in scikit-learn's notation.

    >>> check_value("splits", 2, [int])
    """
    try:
        validate_parameter_constraints({shown: rules}, {shown: value}, caller_name="")
        problem = "must be a number or a text" if is_stray_boolean(value, rules) else ""
    except InvalidParameterError as error:
        problem = "must be " + str(error).partition(" must be ")[2].partition(". Got ")[0]
    if problem:
        raise ValueError(f"{shown} {problem}; got {json.dumps(value, default=str)}")


def _is_part(value: Any) -> bool:
    """Whether it is a step of a recipe, or a list of named ones."""
    listed = isinstance(value, list | tuple) and value and all(isinstance(v, tuple) for v in value)
    return hasattr(value, "get_params") or bool(listed)


def _is_setting(name: str, params: Mapping[str, Any]) -> bool:
    """Whether it is a plain parameter of a step; those of a ``Pipeline`` itself (memory, verbose) are not."""
    owner = name.rpartition("__")[0]
    known = bool(owner) and name in params and not isinstance(params[owner], Pipeline)
    return known and not _is_part(params[name])


def _nearest(shown: str, params: Mapping[str, Any]) -> str:
    known = {k.replace("__", ".") for k in params if _is_setting(k, params)}
    close = difflib.get_close_matches(shown, known, n=1, cutoff=0.75)
    # "mixture.n_components" without its step differs by its beginning
    close = close or sorted(k for k in known if k.endswith(f".{shown}"))
    return close[0] if close else ""


def _check_part(owner: Any, name: str, value: Any, params: Mapping[str, Any]) -> None:
    """Raise ValueError unless the value leaves the step out; whole steps cannot be set otherwise."""
    last = name.rpartition("__")[2]
    if isinstance(owner, Pipeline):
        left_out = value == "passthrough" and last in [step for step, _ in owner.steps[1:-1]]
    elif hasattr(owner, "channels"):
        left_out = value == "drop" and last in dict(owner.channels)
    else:
        left_out = value is None and None in list(getattr(owner, "_parameter_constraints", {}).get(last, []))
    if left_out:
        return
    inside = [k.replace("__", ".") for k in params if k.startswith(f"{name}__") and _is_setting(k, params)]
    hint = f"; set its parameters, such as {min(inside, key=len)}" if inside else ""
    raise ValueError(
        f"{name.replace('__', '.')!r} is a whole step, which cannot be set to {json.dumps(value, default=str)}{hint}"
    )
