# SPDX-License-Identifier: BSD-3-Clause
r"""Normalisation of encodings: what turns raw gradients into good linear features.

Steps, applied in the order given, to every cell on its own:

* ``"whiten"``: zero mean and unit variance over the training images, dimension by dimension; a dimension that is
  constant over training stays zero (cinbis2012 §5: the diagonal, empirical form of the Fisher information);
* ``"power"``: the signed power :math:`\operatorname{sign}(x) |x|^\rho`, a square root by default;
* ``"l2"``: unit Euclidean length; a zero vector stays zero;
* ``"idf"``: times :math:`\ln(n / n_d)`, n training images of which :math:`n_d` have a number other than zero in
  dimension d; one that none of them has becomes zero.  On frequencies of words this is TF-IDF (Sivic & Zisserman
  2003); words must be assigned hard, or nearly every image has a little of each;
* ``"intra"``: unit length of each of ``n_blocks`` equal parts, one per component for VLAD (Arandjelović & Zisserman
  2013).

The improved Fisher vector (Perronnin et al. 2010) is power, then L2; cinbis2012 whitens, takes the root where asked,
then L2. Cells of a spatial pyramid ``(n, C, width)`` are concatenated at the end and divided by :math:`\sqrt C`, which
keeps the length of an image at most one.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.utils.validation import check_is_fitted

from patchbag.device import like, to_host
from patchbag.encodings.base import CACHED_VALUES, SomeOf
from patchbag.parameters import ONE_OR_MORE, POSITIVE, estimator, parameter
from patchbag.records import require_finite
from patchbag.storage.declared import Declared, Either, Shape, floats

COLUMNS = 4096  # dimensions that are looked at in double precision at a time


def signed_power(x: Any, exponent: float = 0.5) -> Any:
    """sign(x)·|x|^exponent."""
    xp = array_namespace(x)
    root = xp.sqrt(xp.abs(x)) if exponent == 0.5 else xp.abs(x) ** exponent
    return xp.copysign(root, x)


def l2_normalize(x: Any) -> Any:
    """Rows of the last axis scaled to unit length; zero rows stay zero."""
    xp = array_namespace(x)
    if is_numpy_array(x):  # without an array of squares
        norm = np.sqrt(np.einsum("...i,...i->...", x, x))[..., None]
    else:
        norm = xp.linalg.vector_norm(x, axis=-1, keepdims=True)
    return x / xp.where(norm > 0, norm, xp.ones_like(norm))


def intra_normalize(x: Any, n_blocks: int) -> Any:
    """Each of ``n_blocks`` equal parts of the last axis scaled to unit length."""
    if x.shape[-1] % n_blocks:
        raise ValueError(f"{x.shape[-1]} dimensions cannot be cut into {n_blocks} equal blocks")
    xp = array_namespace(x)
    return xp.reshape(l2_normalize(xp.reshape(x, (*x.shape[:-1], n_blocks, -1))), x.shape)


@estimator
class Normalizer(TransformerMixin, BaseEstimator):
    """Normalisation steps and the concatenation of spatial cells.

    Parameters
    ----------
    steps : some of ``"whiten"``, ``"power"``, ``"l2"``, ``"idf"``, ``"intra"``, in order; none only joins the cells
    exponent : of the power step
    n_blocks : number of blocks of the intra step

    Attributes
    ----------
    mean_, scale_ : (..., width) of the whitening, as seen after the steps before it
    idf_ : (..., width) factors of the idf step

    >>> Normalizer(["power", "l2"]).fit_transform(np.array([[16.0, -9.0]]))
    array([[ 0.8, -0.6]])
    """

    steps: Sequence[str] = parameter(
        SomeOf({"whiten", "power", "l2", "idf", "intra"}, least=0), default=("power", "l2")
    )
    _: KW_ONLY
    exponent: float = parameter(POSITIVE, default=0.5)
    n_blocks: int | None = parameter(ONE_OR_MORE, None, default=None)

    _stored: ClassVar[dict[str, Declared]] = {
        "shape_": Either((Shape(("width",)), Shape(("cells", "width")))),
        "mean_": Either((floats("width"), floats("cells", "width")), optional=True),
        "scale_": Either((floats("width"), floats("cells", "width")), optional=True),
        "idf_": Either((floats("width"), floats("cells", "width")), optional=True),
    }

    def fit(self, X: Any, y: Any = None) -> Self:
        self.fit_transform(X)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        if "intra" in self.steps and self.n_blocks is None:
            raise ValueError("the 'intra' step needs n_blocks, the number of components")
        x = _check(X)
        self.shape_ = tuple(x.shape[1:])
        done = 0
        for at, step in enumerate(self.steps):
            if step in ("whiten", "idf"):  # look at all images
                x, done = self._apply(self.steps[done:at], x), at
            if step == "whiten":
                mean, deviation = _moments(x)
                xp = array_namespace(x)
                largest = max(float(xp.max(x)), -float(xp.min(x)), 1e-300)
                # rounding makes a constant dimension's deviation tiny rather than zero
                constant = deviation <= 1e-6 * np.abs(mean) + 1e-12 * largest
                dtype = to_host(x[:0, ...]).dtype
                self.mean_ = mean.astype(dtype)
                self.scale_ = np.where(constant, 0, 1 / np.where(constant, 1, deviation)).astype(dtype)
            if step == "idf":
                there = to_host(array_namespace(x).sum(like(x != 0, x), axis=0))
                self.idf_ = np.where(there > 0, np.log(x.shape[0] / np.maximum(there, 1)), 0.0).astype(there.dtype)
        return self._finish(self.steps[done:], x)

    def transform(self, X: Any) -> Any:
        check_is_fitted(self, "shape_")
        x = _check(X)
        if tuple(x.shape[1:]) != self.shape_:
            raise ValueError(f"fitted on encodings of shape (n, {self.shape_}), got {x.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            return require_finite(self._finish(self.steps, x), "the encodings")

    def _finish(self, steps: Sequence[str], x: Any) -> Any:
        """The steps and the cells joined, for so many images at a time as stay in the cache."""
        if not is_numpy_array(x):
            return _join(self._apply(steps, x))
        out = np.empty((len(x), prod(x.shape[1:])), x.dtype)
        rows = max(1, CACHED_VALUES // out.shape[1])
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            out[part] = _join(self._apply(steps, x[part]))
        return out

    def _apply(self, steps: Sequence[str], x: Any) -> Any:
        for step in steps:
            if step == "whiten":
                x = x - like(self.mean_, x)
                x *= like(self.scale_, x)
            elif step == "power":
                x = signed_power(x, self.exponent)
            elif step == "l2":
                x = l2_normalize(x)
            elif step == "idf":
                x = x * like(self.idf_, x)
            else:
                x = intra_normalize(x, self.n_blocks or 1)
        return x

    @staticmethod
    def _check_stored(values: dict[str, Any], sizes: dict[str, int]) -> str | None:
        for name, step in (("mean_", "whiten"), ("scale_", "whiten"), ("idf_", "idf")):
            shape = None if values.get(name) is None else values[name].shape
            if shape != (values["shape_"] if step in values["steps"] else None):
                return f"its {name} of shape {shape} does not fit encodings of shape {values['shape_']}"
        return None


def _check(X: Any) -> Any:
    x = X if is_array_api_obj(X) else np.asarray(X)
    xp = array_namespace(x)
    if x.ndim not in (2, 3):
        raise ValueError(f"expected encodings (n, width) or (n, cells, width), got shape {tuple(x.shape)}")
    if not xp.isdtype(x.dtype, "real floating"):
        x = xp.astype(x, xp.float64)
    if not bool(xp.all(xp.isfinite(x))):
        image = int(xp.argmin(xp.astype(xp.all(xp.isfinite(xp.reshape(x, (x.shape[0], -1))), axis=1), xp.int8)))
        raise ValueError(f"the encoding of image {image} has NaN or infinite entries")
    return x


def _moments(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the rows in double precision, without a copy of all of x in it."""
    xp = array_namespace(x)
    flat = xp.reshape(x, (x.shape[0], -1))
    mean, deviation = np.empty(flat.shape[1]), np.empty(flat.shape[1])
    for start in range(0, flat.shape[1], COLUMNS):
        part = slice(start, min(start + COLUMNS, flat.shape[1]))
        block = xp.astype(flat[:, part], xp.float64)
        mean[part], deviation[part] = to_host(xp.mean(block, axis=0)), to_host(xp.std(block, axis=0))
    return mean.reshape(x.shape[1:]), deviation.reshape(x.shape[1:])


def _join(x: Any) -> Any:
    if x.ndim == 2:
        return x
    xp = array_namespace(x)
    return xp.reshape(x, (x.shape[0], -1)) * xp.asarray(x.shape[1] ** -0.5, dtype=x.dtype, device=device(x))
