# SPDX-License-Identifier: BSD-3-Clause
"""Explicit vectors whose inner products are a kernel: linear classifiers at the accuracy of kernel machines."""
