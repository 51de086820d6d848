# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest

from oracles.pyramid_match import spatial_match
from patchbag.bags import Bags
from patchbag.similarity.sets.spatial_match import SpatialPyramidMatch, cell_of, nearest_words, spatial_weights

RNG = np.random.default_rng(0)
SIZES = RNG.integers(5, 30, 10)
BAGS = Bags.from_list([RNG.normal(size=(m, 3)) for m in SIZES], [RNG.random((m, 2)) for m in SIZES])
WORDS = RNG.normal(size=(4, 3))


def literal(i, j, n_levels):
    where = [BAGS.positions[BAGS.offsets[b] : BAGS.offsets[b + 1]] for b in (i, j)]
    return spatial_match(BAGS[i], BAGS[j], *where, WORDS, n_levels)


@pytest.mark.parametrize("n_levels", [1, 2, 3])
def test_kernel_equals_the_literal_match(n_levels):
    kernel = SpatialPyramidMatch(vocabulary=WORDS, n_levels=n_levels, normalize=False)
    expected = np.array([[literal(i, j, n_levels) for j in range(10)] for i in range(10)])
    np.testing.assert_allclose(kernel.fit_transform(BAGS), expected)
    np.testing.assert_allclose(kernel.fit(BAGS[:6]).transform(BAGS[6:]), expected[6:, :6])
    np.testing.assert_allclose(kernel.diagonal(BAGS), SIZES)


@pytest.mark.parametrize(("offset", "unit"), [(0.0, 1.0), (1e4, 1.0), (0.0, 1e25), (0.0, 1e-25)])
def test_nearest_words_are_those_of_float64_also_where_float32_would_mistake_them(offset, unit):
    rng = np.random.default_rng(1)
    words = rng.normal(size=(30, 4))
    words[15:] = words[:15] + 1e-7 * rng.normal(size=(15, 4))
    values = np.vstack([rng.normal(size=(3000, 4)), words + 1e-9]) + offset
    words = words + offset
    expected = ((values[:, None] - words) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(nearest_words(values * unit, words * unit), expected)


def test_weights_are_lazebnik_s():
    np.testing.assert_allclose(spatial_weights(3), [1 / 4, 1 / 4, 1 / 2])
    assert spatial_weights(5).sum() == 1.0


def test_cells_cover_the_image_including_its_far_border():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.49, 0.51]])
    np.testing.assert_array_equal(cell_of(corners, 1), [0, 1, 2, 3, 2])


def test_learned_vocabulary_gives_a_mercer_kernel_and_the_same_seed_the_same_one():
    kernel = SpatialPyramidMatch(8, random_state=0)
    gram = kernel.fit_transform(BAGS)
    np.testing.assert_allclose(np.diag(gram), 1.0)
    assert np.linalg.eigvalsh(gram)[0] > -1e-12
    np.testing.assert_array_equal(SpatialPyramidMatch(8, random_state=0).fit_transform(BAGS), gram)


def test_moving_features_to_another_cell_lowers_the_match():
    moved = Bags(BAGS.values, BAGS.offsets, 1.0 - BAGS.positions)
    kernel = SpatialPyramidMatch(vocabulary=WORDS).fit(BAGS)
    same, other = np.diag(kernel.transform(BAGS)), np.diag(kernel.transform(moved))
    np.testing.assert_allclose(same, 1.0)
    assert np.all(other < 0.9)


@pytest.mark.parametrize(
    ("parameters", "bags", "message"),
    [
        ({"vocabulary": WORDS}, list(BAGS), "needs positions"),
        ({"vocabulary": WORDS[:, :2]}, BAGS, "expected words of 3 dimensions"),
        ({"n_words": 10_000}, BAGS, "cannot make 10000 words"),
        ({"n_levels": 0}, BAGS, "The 'n_levels' parameter of SpatialPyramidMatch must be"),
        ({"n_levels": 40}, BAGS, "The 'n_levels' parameter of SpatialPyramidMatch must be"),
    ],
)
def test_bad_input_is_a_clear_error(parameters, bags, message):
    with pytest.raises(ValueError, match=message):
        SpatialPyramidMatch(**parameters).fit(bags)
