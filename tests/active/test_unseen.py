# SPDX-License-Identifier: BSD-3-Clause
"""How many images are of classes without a label: what labels drawn at random and labels asked for say."""

from __future__ import annotations

import numpy as np
import pytest

from patchbag.active.unseen import good_turing, novelty, unseen_share


def test_good_turing_counts_the_labels_that_are_alone():
    assert good_turing([]) == 1
    assert good_turing(["a", "b", "b", "c"]) == 2 / 5
    assert good_turing([2, 2, 3, 3]) == 0


def test_of_random_labels_the_share_is_inside_its_interval():
    """40 classes, the probability of each half of that of the one eight before."""
    random = np.random.default_rng(0)
    p = 0.5 ** (np.arange(40) // 8)
    p /= p.sum()
    errors, inside = [], 0
    for _ in range(300):
        labels = random.choice(40, 30, p=p).tolist()
        missing, found = p[np.setdiff1d(np.arange(40), labels)].sum(), unseen_share(labels, random=True)
        errors.append(found.expected - missing)
        inside += found.low <= missing <= found.high
    assert abs(np.mean(errors)) < 0.02 and inside >= 0.85 * 300


def test_while_every_label_opens_a_class_nothing_is_known():
    found = unseen_share(list(range(20)), random=False)
    assert found.low == 0 and found.high > 0.95 and 0.4 < found.expected < 0.5


def test_questions_that_find_no_class_say_that_there_is_none():
    """Ten classes found by ten questions, then only these: Good and Turing's share of such labels is larger."""
    highs = [unseen_share([*range(10), *range(more)], random=False).high for more in (0, 3, 6, 10)]
    assert highs == sorted(highs, reverse=True) and highs[-1] < 0.1
    late = unseen_share([0, 0, 0, 0, 0, 0, 1, 2, 3, 4], random=False)
    early = unseen_share([1, 2, 3, 4, 0, 0, 0, 0, 0, 0], random=False)
    assert late.expected > 2 * early.expected and good_turing([0] * 6 + [1, 2, 3, 4]) == 4 / 11


def test_probabilities_add_up_to_the_share_and_follow_the_variance():
    variance = np.random.default_rng(0).uniform(size=500)
    variance[:2] = 0, 1
    for share in (0.01, 0.3, 0.97):
        p = novelty(share, variance)
        assert p.mean() == pytest.approx(share) and ((p >= 0) & (p <= 1)).all()
        assert (np.diff(p[np.argsort(variance)]) >= 0).all()
    p, variance = p[2:], variance[2:]
    odds = (p / (1 - p)) / (variance / (1 - variance))
    np.testing.assert_allclose(odds, odds[0])
    assert novelty(0.3, variance[:0]).shape == (0,)
    assert (novelty(0.0, variance) == 0).all() and (novelty(1.0, variance) == 1).all()
