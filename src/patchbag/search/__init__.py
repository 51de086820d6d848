# SPDX-License-Identifier: BSD-3-Clause
"""Search a folder of images by example: representations, the index that belongs to a folder, near-duplicates.

Nothing here imports scikit-learn before it is needed: a search in a built index takes less time than that import.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from patchbag.search.index import Match as Match
    from patchbag.search.index import SearchIndex as SearchIndex
    from patchbag.search.representations import REPRESENTATIONS as REPRESENTATIONS

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"index": ["Match", "SearchIndex"], "representations": ["REPRESENTATIONS"]}
)
