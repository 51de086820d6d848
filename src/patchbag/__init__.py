# SPDX-License-Identifier: BSD-3-Clause
"""patchbag: categorise and search images by their local features, and say how sure it is.

The public names are listed in ``__init__.pyi``, where type checkers find them, and are imported when first used:
``import patchbag`` costs milliseconds although Numba, scikit-learn and OpenCV stand behind it.
"""

import os

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _place_for_compiled_code() -> None:
    """Numba keeps compiled loops beside the code or in the user's cache, and fails at import where it can do neither.

    Then they are kept in a folder of this process alone: what lies there is executed, so that nobody else may write it.
    """
    if "NUMBA_CACHE_DIR" in os.environ or os.access(os.path.dirname(__file__), os.W_OK):
        return
    import tempfile

    import platformdirs

    place = platformdirs.user_cache_dir("numba", appauthor=False)
    try:  # as Numba will: what may be written by its mode need not be
        os.makedirs(place, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    except OSError:
        import atexit
        import shutil

        folder = os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="patchbag-compiled-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


_place_for_compiled_code()
