# SPDX-License-Identifier: BSD-3-Clause
"""The page: sort, label, search and check a folder of images in the browser; docs/page.md has its HTTP API.

``database`` and ``journal`` keep labels and what was done, ``album`` is what the page knows of the folder, ``folder``
and ``describing`` keep up with the files, ``live`` learns and ``questions`` asks, ``app`` and ``routes`` speak HTTP.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from patchbag.page.app import create_app as create_app
    from patchbag.page.client import PageClient as PageClient

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"app": ["create_app"], "client": ["PageClient"]}
)
