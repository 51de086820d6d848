# SPDX-License-Identifier: BSD-3-Clause
"""The images of a folder, their labels, what of it cannot be used, and their described features in one store."""

from patchbag.collection.collection import Collection, open_collection
from patchbag.collection.folder import CollectionError

__all__ = ["Collection", "CollectionError", "open_collection"]
