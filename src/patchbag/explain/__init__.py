# SPDX-License-Identifier: BSD-3-Clause
"""Why a class was given its score: which patches, and which training images, spoke for and against it."""
