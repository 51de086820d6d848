# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from oracles.features import voc_11_point, voc_all_point
from patchbag.metrics import average_precision, mean_class_accuracy


def test_mean_class_accuracy_weighs_classes_equally():
    assert mean_class_accuracy(["a"] * 9 + ["b"], ["a"] * 10) == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 5, 200), rng.integers(0, 5, 200)
    assert mean_class_accuracy(truth, predicted) == pytest.approx(balanced_accuracy_score(truth, predicted))


def test_a_class_that_is_only_predicted_does_not_count():
    assert mean_class_accuracy([0, 0, 1], [0, 7, 1]) == pytest.approx(0.75)


@pytest.mark.parametrize(("truth", "predicted"), [([], []), ([1, 2], [1])])
def test_mean_class_accuracy_refuses_lists_that_do_not_match(truth, predicted):
    with pytest.raises(ValueError, match="Found "):
        mean_class_accuracy(truth, predicted)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("rule", "oracle"), [("11-point", voc_11_point), ("all-point", voc_all_point)])
def test_average_precision_equals_the_devkit_loop(seed, rule, oracle):
    rng = np.random.default_rng(seed)
    truth = rng.random(60) < 0.3
    scores = rng.integers(0, 15, 60) / 10  # with many ties
    difficult = rng.random(60) < 0.2
    truth[0], difficult[0] = True, False
    expected = oracle(truth, scores, difficult)
    assert average_precision(truth, scores, difficult, rule) == pytest.approx(expected, abs=1e-12)
    signs = np.where(truth, 1, -1)
    assert average_precision(signs, scores, difficult, rule) == pytest.approx(expected, abs=1e-12)


def test_average_precision_by_hand():
    # ranking + - + : precision 1, 1/2, 2/3 at recall 1/2, 1/2, 1
    truth, scores = [1, 0, 1], [0.9, 0.8, 0.7]
    assert average_precision(truth, scores, rule="all-point") == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert average_precision(truth, scores, rule="11-point") == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)


def test_a_recall_of_exactly_three_tenths_counts_for_0_3():
    truth = [1, 1, 1, 0, 0, 0] + [1] * 7
    # precision is 1 up to recall 3/10; 0.1 * 3 > 0.3 in floating point must not lose that
    expected = (4 * 1 + 7 * 10 / 13) / 11
    assert average_precision(truth, -np.arange(13.0)) == pytest.approx(expected)


def test_difficult_images_change_nothing_wherever_they_rank():
    truth, scores = np.array([1, 0, 1, 0]), np.array([4.0, 3, 2, 1])
    for place in (9.0, 2.5, -np.inf):
        for label in (0, 1):
            got = average_precision([*truth, label], [*scores, place], [0, 0, 0, 0, 1], "all-point")
            assert got == average_precision(truth, scores, rule="all-point")


def test_ties_keep_the_given_order():
    assert average_precision([1, 0], [0.5, 0.5], rule="all-point") == 1.0
    assert average_precision([0, 1], [0.5, 0.5], rule="all-point") == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 0], [1, 2]), "without a positive"),
        (([1, 0], [1, np.nan]), "score 1 is NaN"),
        (([1, 0, -1], [1, 2, 3]), "difficult="),
        (([1, 0], [1, 2, 3]), "equally long"),
        (([1, 0], [1, 2], None, "12-point"), "11-point"),
    ],
)
def test_average_precision_explains_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        average_precision(*arguments)


# --- searches ----------------------------------------------------------------------------------------------------


def test_figures_of_searches_equal_literal_loops(rng):
    from patchbag import mean_average_precision, precision_at, top_four_score

    relevant = rng.random((20, 30)) < 0.2
    relevant[3] = False
    precisions, areas = [], []
    for row in relevant:
        ranks = [rank for rank, is_relevant in enumerate(row) if is_relevant]
        if ranks:
            precisions.append(np.mean([(i + 1) / (rank + 1) for i, rank in enumerate(ranks)]))
            area = 0.0
            for i, rank in enumerate(ranks):
                before = 1.0 if rank == 0 else i / rank
                area += (before + (i + 1) / (rank + 1)) / 2 / len(ranks)
            areas.append(area)
    assert mean_average_precision(relevant) == pytest.approx(np.mean(precisions))
    assert mean_average_precision(relevant, "holidays") == pytest.approx(np.mean(areas))
    assert precision_at(relevant, 7) == pytest.approx(np.mean([row[:7].mean() for row in relevant]))
    assert top_four_score(relevant) == pytest.approx(1 + np.mean([row[:3].sum() for row in relevant]))


def test_what_is_no_ranked_list_is_refused():
    from patchbag import mean_average_precision, precision_at

    with pytest.raises(ValueError, match="no query has a relevant image"):
        mean_average_precision(np.zeros((2, 3), bool))
    with pytest.raises(ValueError, match="between 1 and the 3 ranks"):
        precision_at(np.zeros((2, 3), bool), 4)
    with pytest.raises(ValueError, match="True and False"):
        precision_at([[0.5, 1.0]], 1)
