# SPDX-License-Identifier: BSD-3-Clause
"""Similarities of image mixtures: product and Kullback-Leibler kernels, references, context (liu2010 ch. 4 to 6)."""
