# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from patchbag.bags import Bags
from patchbag.similarity.sets import kernel as sets
from patchbag.similarity.sets.kernel import SetKernel
from patchbag.similarity.sets.minimum_distance import MinimumDistanceKernel

RNG = np.random.default_rng(0)
BAGS = Bags.from_list([RNG.normal(size=(int(m), 3)) for m in RNG.integers(1, 9, 12)])
NOT_MERCER = pytest.mark.filterwarnings("ignore:the .* match is not a Mercer kernel")


def literal(x, z, method, k, p=3.0):
    pairs = np.array([[k(a, b) for b in z] for a in x])
    if method == "sum":
        return sum(pairs[i, j] for i in range(len(x)) for j in range(len(z))) / len(x) / len(z)
    if method == "lyu":
        return sum(pairs[i, j] ** p for i in range(len(x)) for j in range(len(z))) / len(x) / len(z)
    if method == "max":
        return 0.5 * (np.mean([max(row) for row in pairs]) + np.mean([max(column) for column in pairs.T]))
    n, m = pairs.shape
    at_most = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    flow = linprog(-pairs.ravel(), at_most, np.ones(n + m), np.ones((1, n * m)), [min(n, m)], bounds=(0, None))
    return -flow.fun / min(n, m)


@NOT_MERCER
@pytest.mark.parametrize("method", ["sum", "lyu", "max", "emd"])
@pytest.mark.parametrize("local", ["rbf", "linear"])
def test_kernel_equals_the_literal_formula(method, local, monkeypatch):
    monkeypatch.setattr(sets, "ROWS", 15)
    kernel = SetKernel(method, local=local, gamma=0.3, p=3.0, normalize=False)

    def k(a, b):
        return np.exp(-0.3 * ((a - b) ** 2).sum()) if local == "rbf" else a @ b

    expected = [[literal(x, z, method, k) for z in BAGS] for x in BAGS]
    np.testing.assert_allclose(kernel.fit_transform(BAGS), expected, atol=1e-10)
    np.testing.assert_allclose(kernel.diagonal(BAGS), np.diag(expected), atol=1e-10)


def test_sum_and_lyu_kernels_are_mercer_and_normalised():
    for method, p in (("sum", 1.0), ("lyu", 2.5)):
        gram = SetKernel(method, p=p).fit_transform(BAGS)
        np.testing.assert_allclose(np.diag(gram), 1.0)
        assert np.linalg.eigvalsh(gram)[0] > -1e-12


def test_large_exponents_let_the_best_pair_dominate():
    x, near, far = np.zeros((3, 1)), np.array([[0.0], [9.0], [9.0]]), np.array([[1.0], [1.0], [1.0]])
    flat, sharp = (SetKernel("lyu", gamma=0.2, p=p, normalize=False).fit([near, far]) for p in (1.0, 20.0))
    assert flat.transform([x])[0].argmax() == 1
    assert sharp.transform([x])[0].argmax() == 0


@pytest.mark.parametrize("method", ["max", "emd"])
def test_matches_that_are_not_mercer_say_so(method):
    with pytest.warns(UserWarning, match=f"the {method} match is not a Mercer kernel"):
        SetKernel(method).fit(BAGS)


def test_max_match_can_be_indefinite():
    rng = np.random.default_rng(1)
    bags = [rng.normal(size=(3, 2)) for _ in range(40)]
    with pytest.warns(UserWarning, match="Mercer"):
        gram = SetKernel("max", gamma=2.0, normalize=False).fit_transform(bags)
    assert np.linalg.eigvalsh(gram)[0] < -1e-6


FEATURES = np.random.default_rng(6).normal(size=(6, 3))
ZEROS, MIRRORED = np.zeros((4, 3)), np.vstack([FEATURES, -FEATURES])
CENTRED = np.vstack([FEATURES, -0.7 * FEATURES, -0.3 * FEATURES])  # but for rounding


@NOT_MERCER
@pytest.mark.parametrize(
    ("method", "odd"),
    [
        ("sum", CENTRED),
        ("lyu", MIRRORED),
        ("sum", ZEROS),
        ("lyu", ZEROS),
        ("max", ZEROS),
        ("emd", ZEROS),
    ],
)
def test_a_bag_without_similarity_to_itself_cannot_be_normalised(method, odd):
    bags = [*BAGS[:4], odd]
    kernel = SetKernel(method, local="linear", p=3)
    with pytest.raises(ValueError, match=r"bag 4 of 5 has no similarity with itself.*normalize=False"):
        kernel.fit(bags)
    with pytest.raises(ValueError, match="bag 0 of 1 has no similarity with itself"):
        kernel.fit(BAGS).transform([odd])
    plain = SetKernel(method, local="linear", p=3, normalize=False).fit_transform(bags)
    assert np.isfinite(plain).all()
    # features that are only small do have a direction
    scaled = SetKernel(method, local="linear", p=3).fit_transform([*BAGS[:4], 1e-20 * BAGS[4]])
    np.testing.assert_allclose(scaled, SetKernel(method, local="linear", p=3).fit_transform(BAGS[:5]), atol=1e-12)


@NOT_MERCER
@pytest.mark.parametrize("method", ["sum", "lyu", "max", "emd"])
def test_a_bag_of_zeros_is_as_good_as_any_under_the_rbf(method):
    gram = SetKernel(method).fit_transform([*BAGS[:4], np.zeros((4, 3))])
    np.testing.assert_allclose(np.diag(gram), 1.0)
    assert np.isfinite(gram).all()


def test_order_changes_nothing():
    kernel = SetKernel("lyu").fit(BAGS)
    np.testing.assert_allclose(kernel.transform([bag[::-1] for bag in BAGS]), kernel.transform(BAGS), atol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "bags", "message"),
    [
        ({"method": "min"}, BAGS, "The 'method' parameter of SetKernel must be a str among"),
        ({"local": "poly"}, BAGS, "The 'local' parameter"),
        ({"method": "lyu", "local": "linear", "p": 1.5}, BAGS, "p must be a whole number"),
        ({"gamma": 0.0}, BAGS, "The 'gamma' parameter"),
        ({}, [np.ones((2, 2)), np.empty((0, 2))], "bag 1 of 2 has no descriptors"),
        ({}, [], "at least one bag"),
        ({}, [np.ones((2, 2)), np.array([[np.inf, 0.0]])], "bag 1 of 2 has a feature that is not finite"),
        (
            {},
            Bags.from_list(
                [np.ones((2, 2)), np.ones((3, 2))], [np.ones((2, 2)), np.array([[0, 0], [0, np.nan], [0, 0]])]
            ),
            r"bag 1 of 2 has a position that is not finite \(row 1\)",
        ),
    ],
)
def test_bad_input_is_a_clear_error(parameters, bags, message):
    with pytest.raises(ValueError, match=message):
        SetKernel(**parameters).fit(bags)


@pytest.mark.parametrize("kernel", [SetKernel, MinimumDistanceKernel])
def test_bags_too_large_for_all_pairs_are_an_error_that_names_another_kernel(kernel):
    small = np.random.default_rng(0).random((5, 2))
    with pytest.raises(ValueError, match=r"bag 1 of 2 has 16,385 features: .* at most 16,384; .*PyramidMatchKernel"):
        kernel().fit([small, np.zeros(((1 << 14) + 1, 2))])
    fitted = kernel().fit([small, small + 1])
    with pytest.raises(ValueError, match="bag 0 of 1 has 100,000 features"):
        fitted.transform([np.zeros((100_000, 2))])
