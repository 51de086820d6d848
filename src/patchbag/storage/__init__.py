# SPDX-License-Identifier: BSD-3-Clause
"""Models and arrays on disk, and what their files may name and hold."""
