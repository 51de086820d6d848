# SPDX-License-Identifier: BSD-3-Clause
"""Models on disk: one safetensors file with a JSON manifest in its header.  Loading runs no code from the file.

The arrays of a fitted object are tensors; everything else is a tree of JSON values, in which

* ``{"$tensor": name}`` is an array, ``{"$strings": [...]}`` an array of labels,
* ``{"$tuple": [...]}``, ``{"$dict": {...}}``, ``{"$float": "nan"}`` are what JSON has no word for,
* ``{"$object": "FisherVector", "params": {...}, "state": {...}}`` is an estimator: its constructor parameters and its
  fitted attributes (those that end in an underscore), or a dataset of arrays with its fields.

Names of classes are looked up in the registry, the closed list of what a model may consist of; a name that is not there
is an error.  A checksum over the manifest and all tensors tells a damaged file from a good one.  ``VERSION`` counts up
when the layout changes; a reader accepts every version up to its own.

A checksum is no signature: whoever forges a file makes it anew.  So nothing in a file is believed.  The size of the
manifest, its depth and what its texts take up as arrays are bounded before anything is made of them; parameters are
held to the rules of their classes, and all values to their declarations (:mod:`patchbag.storage.declared`), before
an object is made.
"""

import hashlib
import json
import math
import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils._param_validation import validate_parameter_constraints

from patchbag.storage.declared import Sizes, check_declared, declarations, is_stray_boolean, is_strict
from patchbag.storage.foreign import FOREIGN, check_foreign
from patchbag.storage.registry import find_class
from patchbag.storage.replacing import replacing

FORMAT = "patchbag-model"
VERSION = 2
LARGEST_MANIFEST = 1 << 24  # bytes of JSON; in memory it takes up to thirty times as much
DEEPEST = 40  # values inside of one another; the recipes have 15
LARGEST_TEXTS = 1 << 26  # bytes of an array of texts, where the longest of them sets the width of all

# constructor parameters of earlier versions that are no more
_DROPPED = {"Categorizer": {"color"}}


class ModelFileError(ValueError):
    """A file that is not a readable patchbag model."""


def save(obj: Any, path: str | Path) -> Path:
    """Write a fitted object to one file; an existing file is replaced only when the new one is complete."""
    from safetensors.numpy import save as to_bytes

    path = Path(path)
    tensors: dict[str, np.ndarray] = {}
    tree = _encode(obj, tensors, type(obj).__name__)
    from patchbag import __version__

    manifest = {"format": FORMAT, "version": VERSION, "patchbag": __version__, "model": tree}
    manifest["checksum"] = _checksum(tree, tensors)
    text = json.dumps(manifest)
    if len(text) > LARGEST_MANIFEST // 2:  # the header holds it as a text of its own, and names all arrays
        raise ValueError(f"{path}: a model of so many parts and labels cannot be saved ({len(text) >> 20} MB of them)")
    with replacing(path) as file:
        file.write(to_bytes(tensors, metadata={FORMAT: text}))
    return path


def load(path: str | Path) -> Any:
    """The object that ``save`` wrote; :class:`ModelFileError` says what is wrong with any other file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as read_tensors

    path = Path(path)
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder; a patchbag model is one file")
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise ModelFileError(f"{path} is not a file")
        data = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read the model {path}: {error.strerror or error}") from error
    manifest = _read_manifest(data, path)
    try:
        tensors = read_tensors(data)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ModelFileError(f"{path} is damaged or truncated: {error}") from error
    try:
        if _checksum(manifest.get("model"), tensors) != manifest.get("checksum"):
            raise ModelFileError("it is damaged: its checksum does not match its contents; copy or train it again")
        return _Decoder(tensors).decode(manifest["model"])
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ModelFileError(f"{path} does not describe a model of this version: {error}") from error


def _read_manifest(data: bytes, path: Path) -> dict[str, Any]:
    foreign = ModelFileError(f"{path} is not a patchbag model (written by Categorizer.save)")
    if len(data) < 8:
        raise foreign
    (length,) = struct.unpack("<Q", data[:8])
    if length > len(data) - 8 or length > LARGEST_MANIFEST:
        # a pickle, a picture or the first half of a model all end up here
        raise ModelFileError(f"{path} is not a patchbag model, or is truncated")
    try:
        header = json.loads(data[8 : 8 + length])
        manifest = json.loads(header["__metadata__"][FORMAT])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise foreign from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise foreign
    version = manifest.get("version")
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise ModelFileError(
            f"{path} has model format version {version}, this patchbag reads up to {VERSION}: upgrade it"
        )
    return manifest


def _checksum(tree: Any, tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(json.dumps(tree, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        a = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {a.dtype.str} {a.shape}".encode())
        digest.update(a.data if a.size else b"")
    return digest.hexdigest()


# --- objects to trees --------------------------------------------------------------------------------------------


def _encode(value: Any, tensors: dict[str, np.ndarray], where: str) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.generic):
        return _encode(value.item(), tensors, where)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.ndarray):
        return _encode_array(value, tensors, where)
    if isinstance(value, list):
        return [_encode(v, tensors, f"{where}.{i}") for i, v in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [_encode(v, tensors, f"{where}.{i}") for i, v in enumerate(value)]}
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {"$dict": {k: _encode(v, tensors, f"{where}.{k}") for k, v in value.items()}}
    return _encode_object(value, tensors, where)


def _encode_array(value: np.ndarray, tensors: dict[str, np.ndarray], where: str) -> Any:
    if value.dtype.kind in "US" or (value.dtype.kind == "O" and all(isinstance(v, str) for v in value.flat)):
        return {"$strings": value.tolist()}
    if value.dtype.kind not in "fiub":
        raise TypeError(f"{where} is an array of {value.dtype}, which a model file cannot hold")
    tensors[where] = np.ascontiguousarray(value)
    return {"$tensor": where}


def _encode_object(value: Any, tensors: dict[str, np.ndarray], where: str) -> Any:
    name = type(value).__name__
    if find_class(name) is not type(value):
        raise TypeError(
            f"{where} is a {type(value).__module__}.{name}, which a model file cannot hold; "
            "models consist of patchbag's own steps, a few of scikit-learn's, and classes marked storable"
            + ("; LinearClassifier and GaussianProcessClassifier can be saved" if hasattr(value, "predict") else "")
        )
    params, state = _parts(value)
    tree: dict[str, Any] = {"$object": name}
    tree["params"] = {k: _encode(v, tensors, f"{where}.{k}") for k, v in params.items()}
    if state:
        tree["state"] = {k: _encode(v, tensors, f"{where}.{k}") for k, v in state.items()}
    return tree


def _parts(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the constructor takes, and what fitting added."""
    if hasattr(value, "get_params"):
        params = value.get_params(deep=False)
        # where models are trained says nothing about where they are used
        params = {k: v for k, v in params.items() if k not in RUNTIME_PARAMETERS}
        own = FOREIGN.get(type(value).__name__, {})
        return params, {k: v for k, v in vars(value).items() if _is_fitted_attribute(k) or k in own}
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value)}, {}
    return value.stored_parameters(), {}


RUNTIME_PARAMETERS = ("n_jobs", "verbose", "memory", "max_pixels")


def _is_fitted_attribute(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


# --- trees to objects --------------------------------------------------------------------------------------------


class _Decoder:
    """Values of trees, with the tensors of a file."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.tensors = tensors
        self.sizes: dict[int, Sizes] = {}  # of objects that were made
        self.made: list[Any] = []  # which keep their ids

    def decode(self, tree: Any, depth: int = 0) -> Any:
        if depth > DEEPEST:
            raise ModelFileError(f"its values lie more than {DEEPEST} deep inside of one another")
        if isinstance(tree, list):
            return [self.decode(v, depth + 1) for v in tree]
        if not isinstance(tree, dict):
            return tree
        kinds: dict[str, Callable[[Any], Any]] = {
            "$tensor": self._tensor,
            "$strings": _strings,
            "$tuple": lambda v: tuple(self.decode(x, depth + 1) for x in v),
            "$dict": lambda v: {k: self.decode(x, depth + 1) for k, x in v.items()},
            "$float": float,
            "$object": lambda v: self._object(tree, depth),
        }
        for kind, decode in kinds.items():
            if kind in tree:
                return decode(tree[kind])
        raise ModelFileError(f"unknown entry {next(iter(tree), '')!r:.60}")

    def _tensor(self, name: str) -> np.ndarray:
        # a file can put numbers at any byte, compiled loops expect them where the processor does
        return np.require(self.tensors[name], requirements=["C", "A"])

    def _object(self, tree: dict[str, Any], depth: int) -> Any:
        name = tree["$object"]
        cls = find_class(name) if isinstance(name, str) else None
        if cls is None:
            raise ModelFileError(f"it names {name!r:.60}, which is not a part of patchbag models")
        left_out = (*RUNTIME_PARAMETERS, *_DROPPED.get(name, ()))
        params, state = (
            {k: self.decode(v, depth + 1) for k, v in part.items() if k not in left_out}
            for part in (tree["params"], tree.get("state", {}))
        )
        own = FOREIGN.get(cls.__name__, {})
        wrong = next((key for key in state if not _is_fitted_attribute(key) and key not in own), None)
        if wrong is not None:
            raise ModelFileError(f"it sets {wrong!r:.60}, which is not a fitted attribute")
        if hasattr(cls, "_parameter_constraints"):
            rules = cls._parameter_constraints
            validate_parameter_constraints(rules, {k: v for k, v in params.items() if k in rules}, cls.__name__)
            stray = next((k for k, v in params.items() if is_stray_boolean(v, rules.get(k, ""))), None)
            if stray is not None:
                raise ModelFileError(f"{cls.__name__}.{stray} is {params[stray]}, which is no number")
        declared = FOREIGN.get(cls.__name__, declarations(cls))
        if is_strict(cls):  # earlier versions had attributes that are no more
            state = {key: value for key, value in state.items() if key in declared}
        sizes = check_declared(cls, params, state, self.sizes, declared)
        if fault := check_foreign(cls.__name__, params | state, sizes):
            raise ModelFileError(f"{cls.__name__}: {fault}")
        obj = cls(**params)
        for key, value in state.items():
            setattr(obj, key, value)
        self.sizes[id(obj)] = sizes
        self.made.append(obj)
        return obj


def _strings(texts: Any) -> np.ndarray:
    """An array of texts, (n,) or (n, m), if it is no larger than its file lets one expect."""
    rows = texts if isinstance(texts, list) else [None]
    flat = [text for row in rows for text in (row if isinstance(row, list) else [row])]
    if not all(isinstance(text, str) for text in flat):
        raise ModelFileError("its labels are not all texts")
    if 4 * len(flat) * max((len(str(text)) for text in flat), default=0) > LARGEST_TEXTS:
        raise ModelFileError(f"its labels take more than {LARGEST_TEXTS >> 20} MB")
    return np.array(rows, dtype=str)
