# SPDX-License-Identifier: BSD-3-Clause
"""Similarities of word histograms (liu2010 §2.3, §6.2)."""
