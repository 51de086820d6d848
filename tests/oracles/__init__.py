"""Slow, literal versions of the formulas: what the fast code is tested against."""
