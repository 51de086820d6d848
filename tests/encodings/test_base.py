# SPDX-License-Identifier: BSD-3-Clause
"""What holds for every encoding of statistics."""

from __future__ import annotations

import inspect
from dataclasses import replace

import array_api_strict as xp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from patchbag import VLAD, BagOfWords, Bags, FisherVector, LatentFisherVector, Normalizer, PolyaVector, UniversalMixture
from patchbag.encodings import base
from patchbag.encodings.lda import LDAFisherVector
from patchbag.encodings.topics import PLSAFisherVector
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.spatial import SpatialPyramid
from patchbag.mixture.statistics import Statistics, collect
from patchbag.runtime import runtime_context

ENCODINGS = [
    BagOfWords(),
    VLAD(),
    FisherVector(("weights", "means", "variances")),
    PolyaVector(),
    PLSAFisherVector(random_state=0),
    LDAFisherVector(random_state=0),
    LatentFisherVector(),
]
pytestmark = pytest.mark.filterwarnings("ignore:the latent mixture's prior did not converge")


@pytest.fixture(params=ENCODINGS, ids=lambda e: type(e).__name__)
def encoding(request):
    return clone(request.param)


@pytest.fixture(scope="module")
def bags():
    """30 bags of descriptors in 5-D, each with its own shares and means of four clusters."""
    rng = np.random.default_rng(2)
    centres = rng.normal(0, 4, (4, 5))
    arrays = []
    for n in rng.integers(60, 120, 30):
        own = centres + 0.5 * rng.normal(size=(4, 5))
        arrays.append(own[rng.choice(4, n, p=rng.dirichlet(np.ones(4)))] + rng.normal(0, 1, (n, 5)))
    return Bags.from_list(arrays, [rng.random((len(a), 2)) for a in arrays])


@pytest.fixture(scope="module")
def mixture(bags):
    return UniversalMixture(4, random_state=0).fit(bags)


@pytest.fixture(scope="module")
def whole(bags, mixture):
    return collect(bags, mixture.parameters_)


@pytest.fixture(scope="module")
def cells(bags, mixture):
    return collect(bags, mixture.parameters_, SpatialPyramid(["1x1", "1x2"]))


def change(statistics, **arrays):
    copies = {name: a.copy() for name, a in statistics.arrays().items()}
    for name, (index, value) in arrays.items():
        copies[name][index] = value
    return replace(statistics, **copies)


def test_statistics_of_a_foreign_mixture_are_refused_and_equal_parameters_are_the_same_mixture(
    encoding, whole, bags, mixture
):
    encoding.fit(whole)
    weights, means, variances = mixture.weights_, mixture.means_, mixture.variances_
    same = collect(bags, GaussianParameters(weights.copy(), means.copy(), variances.copy()))
    assert np.array_equal(encoding.transform(same), encoding.transform(whole))
    with pytest.raises(ValueError, match="collected under another universal mixture"):
        encoding.transform(collect(bags, GaussianParameters(weights, means[::-1], variances)))
    unknown = replace(whole, universal=None)
    assert np.array_equal(encoding.transform(unknown), encoding.transform(whole))


def test_other_sizes_other_types_and_missing_moments_are_refused(encoding, whole, cells, bags):
    encoding.fit(whole)
    with pytest.raises(ValueError, match=r"fitted on .* \(1, 4.*\), got \(1, 3.*\)"):
        encoding.transform(UniversalMixture(3).fit(bags).statistics(bags))
    with pytest.raises(TypeError, match=r"expected Statistics .*, got Bags"):
        encoding.transform(bags)
    with pytest.raises(ValueError, match=r"\(images, words\) or \(images, cells, words\)"):
        encoding.fit(whole[:0])
    if encoding.learns:
        with pytest.raises(ValueError, match=r"fitted on .* \(1, 4.*\), got \(3, 4.*\)"):
            encoding.transform(cells)
    else:
        assert np.array_equal(encoding.transform(cells)[:, 0].shape, encoding.transform(whole).shape)
    if not encoding.uses_moments:
        assert np.array_equal(encoding.transform(whole.counts()), encoding.transform(whole))
        assert np.array_equal(encoding.transform(whole.s0), encoding.transform(whole))
    else:
        with pytest.raises(ValueError, match="counts alone"):
            encoding.transform(whole.counts())
        with pytest.raises(TypeError, match=r"expected Statistics .*, got ndarray"):
            encoding.transform(whole.s0)


@pytest.mark.parametrize("kind", [VLAD, FisherVector, LatentFisherVector])
def test_encodings_of_moments_need_statistics_that_know_their_mixture(kind, whole):
    with pytest.raises(ValueError, match="do not know their mixture"):
        kind().fit(replace(whole, universal=None))


def test_float32_and_float64_statistics_have_the_same_encoding(encoding, cells):
    codes = encoding.fit(cells).transform(cells)
    single = replace(cells, **{name: a.astype(np.float32) for name, a in cells.arrays().items()})
    narrow = encoding.transform(single)
    assert narrow.dtype == np.float32
    # PLSA's fold-in stops at a change of 1e-5 of an image's mixing
    np.testing.assert_allclose(narrow, codes, atol=1e-4 * np.abs(codes).max())


def test_blocks_of_images_are_encoded_as_all_of_them_are_and_so_on_two_workers(encoding, cells, monkeypatch):
    codes = encoding.fit(cells).transform(cells)
    monkeypatch.setattr(base, "BLOCK_VALUES", 7 * cells.s1[0].size)
    with runtime_context(n_jobs=2):
        assert np.array_equal(encoding.transform(cells), codes)
    monkeypatch.setattr(base, "BLOCK_VALUES", 1)
    assert np.array_equal(encoding.transform(cells), codes)
    assert np.array_equal(encoding.transform(cells[[3]])[0], codes[3])


@pytest.mark.parametrize("kind", [BagOfWords, VLAD, FisherVector])
def test_encodings_that_learn_nothing_run_on_any_array_library(kind, whole, cells):
    for statistics in (whole, cells):
        elsewhere = replace(statistics, **{name: xp.asarray(a) for name, a in statistics.arrays().items()})
        codes = kind().fit(elsewhere).transform(elsewhere)
        assert type(codes).__module__.startswith("array_api_strict")
        assert np.array_equal(np.asarray(codes), kind().fit_transform(statistics))


def test_an_empty_cell_is_zeros_and_an_empty_image_an_error(encoding, cells):
    encoding.fit(cells)
    at = (4, 1)
    codes = encoding.transform(change(cells, s0=(at, 0), s1=(at, 0), s2=(at, 0)))
    np.testing.assert_allclose(codes[at], 0, atol=1e-9)
    assert np.abs(codes[4, 0]).max() > 1e-3
    with pytest.raises(ValueError, match="image 4 of 30 is empty"):
        encoding.transform(change(cells, s0=(4, 0), s1=(4, 0), s2=(4, 0)))


def test_statistics_that_are_not_numbers_are_named_and_leave_the_encoding_unfitted(encoding, whole):
    with pytest.raises(ValueError, match="image 5 of 30 has negative or non-finite counts"):
        encoding.fit(change(whole, s0=((5, 0), -1)))
    with pytest.raises(ValueError, match="image 6 of 30 has negative or non-finite counts"):
        encoding.fit(change(whole, s0=((6, 2), np.nan)))
    if encoding.uses_moments:
        with pytest.raises(ValueError, match="image 7 of 30 has NaN or infinite moments"):
            encoding.fit(change(whole, s2=((7, 1, 2), np.inf)))
        enormous = change(whole, s2=(8, 1e308))  # finite, though their sum is not
        encoding._check(enormous)
    with pytest.raises(NotFittedError):
        encoding.transform(whole)


def test_cells_of_one_image_keep_their_axis(encoding, cells, whole):
    one = replace(cells, **{name: a[:, :1] for name, a in cells.arrays().items()})
    codes = encoding.fit(one).transform(one)
    assert codes.ndim == 3
    same = replace(whole, **{name: a[:, 0] for name, a in one.arrays().items()})
    assert np.array_equal(encoding.transform(same), codes[:, 0])


def test_a_model_stored_without_its_layout_or_mixture_still_encodes(encoding, whole):
    codes = encoding.fit(whole).transform(whole)
    del encoding.layout_
    assert np.array_equal(encoding.transform(whole), codes)
    if encoding.learns:
        del encoding.universal_
        assert np.array_equal(encoding.transform(whole), codes)


BAD = {
    "normalize": "yes",
    "mass": "yes",
    "per_cell": "yes",
    "blocks": ("skew",),
    "steps": ("cube",),
    "exponent": 0.0,
    "n_blocks": 0,
    "count_scale": np.nan,
    "n_topics": 0,
    "n_rounds": -1,
    "max_iter": 0,
    "max_inference": 0,
    "tol": -1.0,
    "inference_tol": -1.0,
    "random_state": "a",
}
CASES = [
    (estimator, name)
    for estimator in [*ENCODINGS, Normalizer()]
    for name in inspect.signature(type(estimator)).parameters
]


@pytest.mark.parametrize(("estimator", "name"), CASES, ids=lambda v: v if isinstance(v, str) else type(v).__name__)
def test_every_parameter_has_a_rule_that_is_checked(estimator, name, whole):
    X = whole.s0 if isinstance(estimator, Normalizer) else whole
    with pytest.raises(ValueError, match=f"The '{name}' parameter of {type(estimator).__name__} must be"):
        clone(estimator).set_params(**{name: BAD[name]}).fit(X)


@pytest.mark.parametrize("value", [(), "means", ("means", 3), None])
def test_a_list_of_options_is_one_or_more_of_them(value, whole):
    with pytest.raises(ValueError, match="must be a list of 1 or more, each entry a str among"):
        FisherVector(value).fit(whole)
    assert FisherVector(["means"]).fit_transform(whole).shape == (30, 20)


def test_counts_are_read_as_statistics_without_moments(whole):
    nothing = np.empty((*whole.s0.shape, 0))
    codes = PolyaVector().fit_transform(whole.s0)
    assert np.array_equal(PolyaVector().fit_transform(Statistics(whole.s0, nothing, nothing)), codes)
    assert np.array_equal(PolyaVector().fit_transform(whole.s0.tolist()), codes)
