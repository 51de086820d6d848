# SPDX-License-Identifier: BSD-3-Clause
"""Nearest neighbours under Bregman divergences: exact and approximate."""
