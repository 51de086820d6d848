# SPDX-License-Identifier: BSD-3-Clause
"""A digest of the code that makes features, statistics, kernels and models.

What is kept of an experiment (figures, kernel matrices) is found again by it, among other things: after a change of the
code that made them, old ones are not served.
"""

import hashlib
from functools import cache
from pathlib import Path

# what turns images into figures; texts, commands and reports do not change them
FOLDERS = (
    "images", "storage", "datasets", "features", "mixture", "encodings", "embeddings", "similarity", "neighbors",
    "classifiers", "active", "search", "experiments",
)  # fmt: skip


@cache
def code_fingerprint() -> str:
    """Digest of the source files of :data:`FOLDERS` and of the containers and recipes beside them."""
    root = Path(__file__).parent
    files = sorted([*root.glob("*.py"), *(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))])
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
