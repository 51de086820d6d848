# SPDX-License-Identifier: BSD-3-Clause
"""Layouts of known benchmarks: PASCAL VOC, ImageNet, IRMA, and groups of images of the same thing."""
