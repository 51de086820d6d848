# SPDX-License-Identifier: BSD-3-Clause
"""Similarities of sets of vectors without a model of them (kapoor2010 §5)."""
