# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian processes on kernels between images (kapoor2010)."""
