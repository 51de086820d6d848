# SPDX-License-Identifier: BSD-3-Clause
"""Boosted prototypes: votes of a few training images that are worth hearing (piro2010, chapters 4 and 5)."""
