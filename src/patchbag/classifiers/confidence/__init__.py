# SPDX-License-Identifier: BSD-3-Clause
"""How sure a classifier may be."""
