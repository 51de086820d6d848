from __future__ import annotations

import numpy as np
import pytest

from patchbag import Bags, MeanDescriptor
from patchbag.encodings import mean


def test_a_bag_is_the_mean_of_its_descriptors_whatever_the_chunks(bags, monkeypatch):
    expected = np.array([values.mean(axis=0) for values in bags])
    np.testing.assert_allclose(MeanDescriptor().fit_transform(bags), expected)
    monkeypatch.setattr(mean, "ROWS", 50)
    np.testing.assert_allclose(MeanDescriptor().fit_transform(bags), expected)


def test_bytes_and_halves_are_averaged_in_single_precision():
    for dtype in (np.uint8, np.float16):
        rows = np.full((1000, 2), 200, dtype)
        means = mean.bag_means(Bags(rows, [0, 1000]))
        assert means.dtype == np.float32 and means.tolist() == [[200.0, 200.0]]


def test_empty_bags_and_other_dimensions_are_clear_errors(bags):
    with pytest.raises(ValueError, match="bag 1 of 2 has no descriptors"):
        mean.bag_means(Bags(np.zeros((3, 2)), [0, 3, 3]))
    with pytest.raises(ValueError, match="fitted on 5-D descriptors, got 2-D"):
        MeanDescriptor().fit(bags).transform([np.zeros((3, 2))])
