# SPDX-License-Identifier: BSD-3-Clause
"""Parameters of estimators: each is declared once, with its type, its rules and its default::

    @estimator
    class Normalizer(TransformerMixin, BaseEstimator):
        steps: Sequence[str] = parameter(SomeOf({"whiten", "power", "l2"}), default=("power", "l2"))
        _: KW_ONLY
        exponent: float = parameter(POSITIVE, default=0.5)
        n_blocks: int | None = parameter(ONE_OR_MORE, None, default=None)

A class that is written so has the constructor that scikit-learn asks for, which only stores, and its
``_parameter_constraints``, which ``fit``, :mod:`patchbag.settings` and model files hold parameters to.  The rules are
scikit-learn's; a value has to follow one of them.  Parameters are inherited.  All else in the class is as in any other.
"""

import inspect
from dataclasses import MISSING, Field, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import _BaseComposition

ONE_OR_MORE = Interval(Integral, 1, None, closed="left")
TWO_OR_MORE = Interval(Integral, 2, None, closed="left")
ZERO_OR_MORE = Interval(Integral, 0, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
SHARE = Interval(Real, 0, 1, closed="both")

C = TypeVar("C", bound=type)


def parameter(*rules: Any, default: Any = MISSING) -> Any:
    """Declare a parameter of an estimator; without rules its value is not checked."""
    return field(default=default, metadata={"rules": list(rules) or "no_validation"})


@dataclass_transform(eq_default=False, field_specifiers=(parameter,))
def estimator(cls: C) -> C:
    """Make the constructor of a class, and the constraints of its parameters.

    >>> from sklearn.base import BaseEstimator
    >>> @estimator
    ... class Scaled(BaseEstimator):
    ...     factor: float = parameter(float, default=2.0)
    >>> Scaled(), Scaled(3.0).get_params(), Scaled._parameter_constraints
    (Scaled(), {'factor': 3.0}, {'factor': [<class 'float'>]})
    """
    made: Any = cls
    annotations = inspect.get_annotations(cls)
    # only parameters are fields, and KW_ONLY, which says that those behind it are given by name
    chosen = [name for name in annotations if name == "_" or isinstance(vars(cls).get(name), Field)]
    made.__annotations__ = {name: annotations[name] for name in chosen}
    dataclass(eq=False, repr=False)(cls)
    made.__annotations__ = annotations
    made._parameter_constraints = {f.name: f.metadata["rules"] for f in fields(made)}
    return cls


class Composition(_BaseComposition):
    """Base of estimators with named parts, whose parameters are theirs too: ``fisher__exponent``."""

    _parts: ClassVar[str]  # the parameter that lists them, (name, part) each

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return self._get_params(self._parts, deep=deep)

    def set_params(self, **params: Any) -> Self:
        self._set_params(self._parts, **params)
        return self
