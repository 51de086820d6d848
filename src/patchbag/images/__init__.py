# SPDX-License-Identifier: BSD-3-Clause
"""Pictures from anywhere: which formats are read, decoded safely, upright, on one scale."""
