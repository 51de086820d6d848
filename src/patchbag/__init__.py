# SPDX-License-Identifier: BSD-3-Clause
"""patchbag: categorise and search images by their local features, and say how sure it is.

The public names are listed in ``__init__.pyi``, where type checkers find them, and are imported when first used:
``import patchbag`` costs milliseconds although Numba, scikit-learn and OpenCV stand behind it.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
