# SPDX-License-Identifier: BSD-3-Clause
"""The images of a folder, their labels, what of it cannot be used, and their described features in one store.

The names are imported when first used: whoever only walks a folder or reads the store does not wait for scikit-learn.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from patchbag.collection.collection import Collection as Collection
    from patchbag.collection.collection import open_collection as open_collection
    from patchbag.collection.folder import CollectionError as CollectionError

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"collection": ["Collection", "open_collection"], "folder": ["CollectionError"]}
)
