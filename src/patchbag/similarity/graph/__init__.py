# SPDX-License-Identifier: BSD-3-Clause
"""Similarities that use all images of a pool, labelled or not: neighbours, their graph, diffusion on it."""
