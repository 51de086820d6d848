# SPDX-License-Identifier: BSD-3-Clause
"""Describe image files with the help of a store: what it has is mapped, what it lacks is computed and appended."""

import hashlib
import sqlite3
import warnings
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Literal

import numpy as np

from patchbag.bags import Bags
from patchbag.collection.files import file_status
from patchbag.collection.store import Store
from patchbag.features.extraction import Extraction, Failure, FeatureExtractor, Progress, check_on_error

BATCH_BYTES = 64 * 2**20
TOGETHER = 64  # images, fewer than a network's last outputs that are kept


def describe(
    features: FeatureExtractor,
    paths: Sequence[str],
    store: Store,
    *,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
) -> Extraction:
    """What ``features.extract`` gives, computed only where the store has it not.

    The bags are mapped and have a ``fingerprint`` of the images and the feature.  If they cannot be stored, which a
    warning says, they are in memory and have none.
    """
    check_on_error(on_error)
    if not isinstance(features, FeatureExtractor):
        raise TypeError(f"features must be a feature extractor such as DenseSIFT(step=8), got {features!r}")
    features._validate_params()  # not fit, which would forget the page that a model reads
    if store.max_bytes > 0:
        try:
            with store.opened():
                return _describe(features, paths, store, on_error, progress)
        except (OSError, sqlite3.Error) as error:
            if type(error) is sqlite3.DatabaseError:  # the index is damaged: the next run begins anew
                store.remove()
            warnings.warn(f"features are not kept in {store.folder}: {error}", stacklevel=3)
    return features.extract(paths, on_error=on_error, progress=progress)


def describe_together(
    features: Sequence[FeatureExtractor], paths: Sequence[str], store: Store, progress: Progress | None = None
) -> None:
    """Fill the store with features that share their work (the outputs of one network), a few images at a time.

    What fails here is reported by ``describe``, which finds the rest in the store.
    """
    groups: dict[Any, list[FeatureExtractor]] = {}
    for feature in features:
        groups.setdefault(feature.shares(), []).append(feature)
    together = [group for key, group in groups.items() if key is not None and len(group) > 1]
    if store.max_bytes <= 0 or not together:
        return
    for start in range(0, len(paths), TOGETHER):
        block = paths[start : start + TOGETHER]
        for group in together:
            for feature in group:
                describe(feature, block, store, on_error="skip")
        if progress is not None:
            progress(min(start + TOGETHER, len(paths)), len(paths))


def _describe(
    features: FeatureExtractor, paths: Sequence[str], store: Store, on_error: str, progress: Progress | None
) -> Extraction:
    signature = features.signature()
    files = store.digests(paths, features.n_jobs)
    # an image is known by its content, or where it cannot be read by its place
    known_by: list[Any] = [place if digest is None else digest for place, (_, digest) in enumerate(files)]
    first = {key: i for i, key in reversed([*enumerate(known_by)])}
    shard, entries = store.find(signature, (key for key in first if isinstance(key, bytes)))
    missing = sorted(i for key, i in first.items() if key not in entries)
    failed: dict[Any, str] = {}
    pending: dict[Any, Any] = {}
    with closing(features.stream([paths[i] for i in missing])) as stream:
        for coming, i, result in zip(reversed(range(len(missing))), missing, stream):
            status, digest = files[i]
            if not isinstance(result, Failure) and (digest is None or file_status(paths[i]) != status):
                result = Failure(i, paths[i], "was changed while it was read")
            if isinstance(result, Failure):
                failed[known_by[i]] = result.message
                if on_error == "raise":
                    raise result._replace(index=i).error(len(paths))
            else:
                pending[digest] = result
            if pending and (coming == 0 or sum(values.nbytes for values, _ in pending.values()) > BATCH_BYTES):
                shard, entries = store.append(signature, pending, entries, shard.id if shard else 0, coming)
                pending = {}
            if progress is not None:
                progress(len(paths) - coming, len(paths))
    failures = [Failure(i, paths[i], failed[key]) for i, key in enumerate(known_by) if key in failed]
    kept = np.array([i for i, key in enumerate(known_by) if key in entries], dtype=np.int64)
    if shard is None:
        return Extraction(Bags.from_list([]), kept, failures)
    values, positions = shard.map()
    found = [entries[known_by[i]] for i in kept]
    bags = Bags.from_ranges(values, [entry.first for entry in found], [entry.size for entry in found], positions)
    content = signature.encode() + b"".join(known_by[i] for i in kept)
    bags.fingerprint = hashlib.blake2b(content, digest_size=20).hexdigest()
    return Extraction(bags, kept, failures)
