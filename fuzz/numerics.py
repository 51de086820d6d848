"""Every public estimator on extreme data: a finite answer, or an error of ours that says what to do.

Case i is the i-th pair of an estimator of ``tests/test_estimators.py`` and an extreme; when all pairs were tried the
numbers are drawn anew.  Numba's and LAPACK's own errors count as findings, and so do NaN and infinity.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests")]

import campaign  # noqa: E402
import numpy as np  # noqa: E402

Change = Callable[[np.ndarray], np.ndarray]


def one_row(value: float) -> Change:
    def change(a: np.ndarray) -> np.ndarray:
        a = a.astype(np.float64)
        a[len(a) // 2] = value
        return a

    return change


def _as(dtype: Any) -> Change:
    return lambda a: a.astype(dtype)


ARRAYS: dict[str, Change] = {
    "as it is": lambda a: a,
    "zeros": np.zeros_like,
    "ones": np.ones_like,
    "constant 1e30": lambda a: np.full_like(a, 1e30),
    "times 1e30": lambda a: a * 1e30,
    "times 1e-30": lambda a: a * 1e-30,
    "times 1e200": lambda a: a * 1e200,
    "times 1e-200": lambda a: a * 1e-200,
    "times 1e308": lambda a: a * 1e308,
    "float32 times 1e30": lambda a: (a * 1e30).astype(np.float32),
    "float32 times 1e-30": lambda a: (a * 1e-30).astype(np.float32),
    "subnormal": lambda a: a * 1e-310,
    "far from the origin": lambda a: a + 1e9,
    "negative": lambda a: -np.abs(a),
    "one NaN": one_row(np.nan),
    "one infinity": one_row(np.inf),
    "one row of 1e30": one_row(1e30),
    "one row of 1e200": one_row(1e200),
    "one row of zeros": one_row(0.0),
    "all NaN": lambda a: np.full_like(a, np.nan),
    "float16": _as(np.float16),
    "float32": _as(np.float32),
    "int8": _as(np.int8),
    "int64": _as(np.int64),
    "uint8": lambda a: np.abs(a).astype(np.uint8),
    "bool": lambda a: a > np.median(a),
    "complex": _as(np.complex128),
    "object": _as(object),
    "text": _as(str),
    "big-endian": _as(">f8"),
    "read-only": lambda a: _read_only(a),
    "Fortran order": np.asfortranarray,
    "every row twice the same": lambda a: np.repeat(a[::2], 2, axis=0)[: len(a)],
    "two values": lambda a: np.where(a > np.median(a), 1.0, 0.0),
}
SAMPLES = ("none", "one", "two", "one class", "mixed labels", "labels of floats")
ONE = "one descriptor per bag"
MILLION = "a million descriptors in one bag"


def _read_only(a: np.ndarray) -> np.ndarray:
    a = np.array(a)
    a.flags.writeable = False
    return a


def changed(X: Any, change: Change) -> Any:
    """A dataset of any kind with its numbers changed."""
    from patchbag import Bags, Channels

    if isinstance(X, Bags):
        return Bags(change(np.asarray(X.values)), X.offsets, X.positions)
    if isinstance(X, Channels):
        return Channels({name: changed(X[name], change) for name in X.names})
    if isinstance(X, list):
        return [change(np.asarray(a, dtype=float) / 255) for a in X]
    if hasattr(X, "arrays"):
        return replace(X, **{name: change(a) for name, a in X.arrays().items()})
    return change(np.asarray(X))


def with_a_million(bags: Any) -> Any:
    """The bags with the first one's descriptors again and again, each a little elsewhere."""
    from patchbag import Bags

    rng = np.random.default_rng(0)
    rows = rng.integers(0, bags.sizes[0], 10**6)
    first = np.asarray(bags[0])[rows] + rng.normal(0, 1e-3, (len(rows), bags.dimension))
    places = [rng.random((len(rows), 2)), *(bags[i : i + 1].positions for i in range(1, len(bags)))]
    return Bags.from_list([first, *list(bags)[1:]], places)


def prepare() -> campaign.Case:
    warnings.simplefilter("ignore")
    from numba.core.errors import NumbaError

    import test_estimators
    from patchbag import Bags

    names = [name for name in test_estimators.CASES if name not in ("DeepPatches", "Channel")]
    pairs = [(name, extreme) for name in names for extreme in (*ARRAYS, *SAMPLES)]
    of_bags = [name for name in names if test_estimators.CASES[name][1] is test_estimators.make_bags]
    pairs += [(name, extreme) for extreme in (ONE, MILLION) for name in of_bags]

    def case(seed: int) -> str:
        (name, extreme), turn = pairs[seed % len(pairs)], seed // len(pairs)
        make, data = test_estimators.CASES[name]
        X, estimator = data(turn), make()
        y: Any = test_estimators.LABELS[: len(X)]
        pairwise = data is test_estimators.make_kernel
        try:
            with np.errstate(all="ignore"):
                if extreme in ARRAYS:
                    X = changed(X, ARRAYS[extreme])
                elif extreme in ("none", "one", "two"):
                    n = ("none", "one", "two").index(extreme)
                    X, y = (X[:n, :n] if pairwise else X[:n]), y[:n]
                elif extreme == ONE:
                    X = Bags.from_list([bag[:1] for bag in X], [np.zeros((1, 2))] * len(X))
                elif extreme == MILLION:
                    X = with_a_million(X)
                elif extreme == "one class":
                    y = np.full(len(y), "a")
                else:
                    y = [1, "a"] * (len(X) // 2) if extreme == "mixed labels" else np.linspace(0, 1, len(X))
                answer = test_estimators.answer(estimator.fit(X, y), X)
        except (np.linalg.LinAlgError, NumbaError) as error:
            raise RuntimeError(f"{name}, {extreme}: {type(error).__name__}: {error}") from error
        except ValueError:
            return "ValueError"
        except TypeError as error:
            if "expected" in str(error):
                return "TypeError"
            raise RuntimeError(f"{name}, {extreme}: TypeError: {error}") from error
        except Exception as error:
            raise RuntimeError(f"{name}, {extreme}: {type(error).__name__}: {error}") from error
        if answer.dtype.kind in "fc" and not np.isfinite(answer).all():
            raise ArithmeticError(f"{name}, {extreme}: NaN or infinity in the answer")
        return "answer"

    case.cases = len(pairs)  # type: ignore[attr-defined]
    return case


if __name__ == "__main__":
    campaign.main(__file__, prepare, share=40)
