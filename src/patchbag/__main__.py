# SPDX-License-Identifier: BSD-3-Clause
"""``python -m patchbag``: the command line."""

from patchbag.cli import main

if __name__ == "__main__":
    main()
