# SPDX-License-Identifier: BSD-3-Clause
"""The command line: ``patchbag``, or ``python -m patchbag``."""

import gc


def main() -> None:
    """Entry point of all commands."""
    gc.set_threshold(50_000)  # imports make many objects and no garbage
    from patchbag.cli import main

    main()


if __name__ == "__main__":
    main()
