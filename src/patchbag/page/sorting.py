# SPDX-License-Identifier: BSD-3-Clause
"""Files go into folders by class: copied, linked or moved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def move_file(root: Path, source: str, target: str) -> bool:
    """Move a file of the folder to where no other is; whether that was possible."""
    before, after = os.path.join(root, source), os.path.join(root, target)
    if not os.path.lexists(before) or os.path.lexists(after):
        return False
    os.makedirs(os.path.dirname(after), exist_ok=True)
    try:
        shutil.move(before, after)
    except OSError:
        return False
    return True
