# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from patchbag.features import grid


@pytest.mark.parametrize("length", [13, 14, 40, 101, 512])
@pytest.mark.parametrize(("step", "reach"), [(1, 6.0), (4, 6.0), (5, 4.5), (8, 2.5)])
def test_an_axis_holds_every_patch_that_fits_and_leaves_equal_margins(length, step, reach):
    centres = grid.axis_centres(length, step, reach)
    before, after = centres[0] - reach, length - 1 - reach - centres[-1]
    assert before >= 0 and after >= 0
    assert before + after < step  # otherwise one more would fit
    assert 0 <= after - before <= 1
    assert np.all(np.diff(centres) == step)
    assert before == int(before)


def test_a_patch_larger_than_the_image_has_no_place():
    assert len(grid.axis_centres(12, 4, 6.0)) == 0
    assert len(grid.axis_centres(13, 4, 6.0)) == 1
    assert [len(c) for c in grid.lattice(3, 1, [6.0, 9.0])] == [0, 0]


def test_the_grid_of_the_benchmark_has_125_patches_a_side():
    assert len(grid.axis_centres(512, 4, 6.0)) == 125


@pytest.mark.parametrize("length", [30, 64, 199])
def test_scales_share_one_lattice_and_each_reaches_as_far_out_as_it_fits(length):
    reaches = [6.0, 9.0, 13.5]
    axes = grid.lattice(length, 4, reaches)
    phases = {float(c % 4) for axis in axes for c in axis}
    assert len(phases) == 1
    for axis, reach in zip(axes, reaches):
        assert axis[0] - reach >= 0 > axis[0] - 4 - reach
        assert axis[-1] + reach <= length - 1 < axis[-1] + 4 + reach
        assert set(axes[2]) <= set(axis)


def test_positions_are_fractions_x_first_row_after_row():
    where = grid.positions(np.array([0.0, 9.0]), np.array([0.0, 1.0, 3.0]), width=10, height=4)
    assert where.dtype == np.float32
    expected = [[x, y] for y in (0.125, 0.375, 0.875) for x in (0.05, 0.95)]
    np.testing.assert_allclose(where, expected, rtol=1e-6)
