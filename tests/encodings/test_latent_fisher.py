# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from oracles import latent as oracle
from patchbag.encodings.latent_fisher import BLOCKS, LatentFisherVector, latent_gradient
from patchbag.encodings.latent_mixture import LatentPrior, em_step, fit_prior, free_energy, infer_bag, posterior
from patchbag.encodings.polya import polya_gradient
from patchbag.mixture.parameters import GaussianParameters
from patchbag.mixture.statistics import Statistics

K, D = 3, 2


def random_prior(rng, models=1):
    shape = (models, K, D)
    return LatentPrior(
        rng.gamma(3.0, 1.0, (models, K)),
        rng.normal(0, 2, shape),
        rng.gamma(3.0, 1.0, shape),
        rng.gamma(4.0, 1.0, shape),
        rng.gamma(4.0, 1.0, shape),
    )


def values(prior, model=0):
    return [getattr(prior, f.name)[model] for f in fields(prior)]


def draw_images(rng, n=60, size=40, dtype=np.float64, spread=0.5):
    """Images whose mixtures vary around a common one, with the statistics of their true assignments."""
    means = np.array([[-4.0, 0.0], [0.0, 4.0], [4.0, -1.0]])
    bags, rows = [], []
    for _ in range(n):
        own = means + spread * rng.normal(size=(K, D))
        deviation = np.sqrt(rng.gamma(8.0, 1 / 8.0, (K, D)))
        w = rng.choice(K, size, p=rng.dirichlet([1.0, 2.0, 3.0]))
        x = own[w] + deviation[w] * rng.normal(size=(size, D))
        bags.append(x)
        rows.append(oracle.statistics(x, np.eye(K)[w]))
    s0, s1, s2 = (np.array(column).astype(dtype) for column in zip(*rows))
    return bags, Statistics(s0, s1, s2, universal=GaussianParameters(np.ones(K) / K, means, np.ones((K, D))))


def changed(statistics, function):
    """Statistics with every array replaced by a function of it."""
    return replace(statistics, **{name: function(a) for name, a in statistics.arrays().items()})


@pytest.fixture
def image(rng):
    x = rng.normal(0, 2, (7, D))
    return x, rng.dirichlet(np.ones(K), 7)


def test_posterior_equals_the_printed_equations(rng, image):
    prior = random_prior(rng)
    s = oracle.statistics(*image)
    ours = posterior(*(a[None, None] for a in s), prior)
    for found, expected in zip(ours, oracle.posterior(*s, *values(prior))):
        np.testing.assert_allclose(found[0, 0], expected, rtol=1e-12)


def test_free_energy_equals_the_bound_written_out(rng, image):
    prior, (x, r) = random_prior(rng), image
    s = oracle.statistics(x, r)
    q = oracle.posterior(*s, *values(prior))
    entropy = -np.sum(r * np.log(r))
    ours = free_energy(*(a[None, None] for a in s), prior, entropy)
    assert ours[0, 0] == pytest.approx(oracle.free_energy(x, r, q, *values(prior)), rel=1e-12)


def test_posterior_maximises_the_bound(rng, image):
    prior, (x, r) = random_prior(rng), image
    q = oracle.posterior(*oracle.statistics(x, r), *values(prior))
    best = oracle.free_energy(x, r, q, *values(prior))
    for _ in range(20):
        other = tuple(p * np.exp(0.1 * rng.normal(size=p.shape)) for p in q)
        assert oracle.free_energy(x, r, other, *values(prior)) < best


def gradient_blocks(codes):
    widths = [K] + [K * D] * 4
    parts = np.split(codes, np.cumsum(widths)[:-1])
    return {name: part.reshape(K, -1) if name != "alpha" else part for name, part in zip(BLOCKS, parts)}


def test_gradients_equal_the_printed_equations_and_finite_differences_of_the_bound(rng, image):
    prior, (x, r) = random_prior(rng), image
    s = tuple(a[None, None] for a in oracle.statistics(x, r))
    q = tuple(a[0, 0] for a in posterior(*s, prior))
    ours = gradient_blocks(latent_gradient(*s, prior)[0, 0])
    printed, h = oracle.gradients(q, *values(prior)), 1e-5
    for name in BLOCKS:
        np.testing.assert_allclose(ours[name], printed[name], rtol=1e-8, atol=1e-9)
        for index in np.ndindex(printed[name].shape):
            step = np.zeros(getattr(prior, name).shape)
            step[(0, *index)] = h
            up, down = (replace(prior, **{name: getattr(prior, name) + sign * step}) for sign in (1, -1))
            # at fixed q, and, by the envelope theorem, at the q that is best for each
            fixed = oracle.free_energy(x, r, q, *values(up)) - oracle.free_energy(x, r, q, *values(down))
            best = (free_energy(*s, up) - free_energy(*s, down))[0, 0]
            assert ours[name][index] == pytest.approx(fixed / (2 * h), abs=1e-6)
            assert ours[name][index] == pytest.approx(best / (2 * h), abs=1e-6)


def test_weight_block_is_the_polya_gradient_of_soft_counts(rng, image):
    prior = random_prior(rng)
    s = tuple(a[None, None] for a in oracle.statistics(*image))
    alone = latent_gradient(*s, prior, blocks=["alpha"])
    np.testing.assert_allclose(alone[0], polya_gradient(s[0][0], prior.alpha[0]), rtol=1e-12)
    np.testing.assert_allclose(latent_gradient(*s, prior)[..., :K], alone, rtol=1e-12)


def test_blocks_are_cut_out_of_the_whole(rng):
    _, statistics = draw_images(rng, 20)
    encoder = LatentFisherVector().fit(statistics)
    whole = encoder.transform(statistics)
    assert whole.shape == (20, K * (1 + 4 * D))
    encoder.blocks = ("b", "m")
    expected = np.concatenate([whole[:, K : K + K * D], whole[:, -K * D :]], axis=1)
    np.testing.assert_array_equal(encoder.transform(statistics), expected)


def test_learning_never_lowers_the_bound_and_leaves_no_gradient(rng):
    _, statistics = draw_images(rng)
    encoder = LatentFisherVector(max_iter=1000, tol=1e-11).fit(statistics)
    history = np.array(encoder.free_energy_)
    assert (np.diff(history) >= 0).all()
    assert history[-1] > history[0] + 1
    codes = encoder.transform(statistics)
    mean = gradient_blocks(codes.mean(axis=0))
    spread = gradient_blocks(codes.std(axis=0))
    for name in BLOCKS:
        assert (np.abs(mean[name]) < 0.01 * spread[name]).all(), name


def test_learning_ends_above_many_nearby_priors(rng):
    _, statistics = draw_images(rng)
    encoder = LatentFisherVector(max_iter=1000, tol=1e-11).fit(statistics)
    s = tuple(a[:, None] for a in statistics.arrays().values())
    best = free_energy(*s, encoder.prior_).sum()
    for f in fields(LatentPrior):
        for factor in (0.9, 1.1):
            other = replace(encoder.prior_, **{f.name: factor * getattr(encoder.prior_, f.name)})
            assert free_energy(*s, other).sum() < best


def test_learning_recovers_the_spread_of_means_and_precisions(rng):
    _, statistics = draw_images(rng, n=600, size=120)
    prior = LatentFisherVector(tol=1e-9, max_iter=500).fit(statistics).prior_
    np.testing.assert_allclose(prior.m[0], [[-4, 0], [0, 4], [4, -1]], atol=0.15)
    # variances are Gamma(8, 8) around 1, so precisions 1/variance have the mean 8/7
    np.testing.assert_allclose((prior.a / prior.b)[0], 8 / 7, rtol=0.1)
    assert (prior.a > 3).all()
    assert (prior.a < 14).all()
    # Var(mu) = 0.25 = E[1/(beta lambda)] = b / (beta (a - 1))
    np.testing.assert_allclose((prior.b / prior.beta / (prior.a - 1))[0], 0.25, rtol=0.25)


def test_start_from_another_mixture_ends_at_the_same_prior(rng):
    _, statistics = draw_images(rng)
    universal = GaussianParameters(np.ones(3) / 3, np.array([[-3.0, 1], [1, 3], [3, 0]]), 2 * np.ones((3, 2)))
    given = replace(statistics, universal=universal)
    options = {"max_iter": 1000, "tol": 1e-11}
    a = LatentFisherVector(**options).fit_transform(statistics)
    b = LatentFisherVector(**options).fit_transform(given)
    np.testing.assert_allclose(a, b, rtol=0.02, atol=0.02)


def test_float32_statistics_give_the_float64_encoding(rng):
    _, statistics = draw_images(rng)
    encoder = LatentFisherVector().fit(statistics)
    single = changed(statistics, lambda a: a.astype(np.float32))
    codes = encoder.transform(single)
    assert codes.dtype == np.float32
    np.testing.assert_allclose(codes, encoder.transform(statistics), rtol=1e-4, atol=1e-4)
    from_single = LatentFisherVector().fit(single).transform(single)
    np.testing.assert_allclose(from_single, codes, rtol=2e-2, atol=2e-2)


def test_count_scale_is_the_same_as_scaled_statistics(rng):
    _, statistics = draw_images(rng, 30)
    scaled = changed(statistics, lambda a: 0.5 * a)
    a = LatentFisherVector(count_scale=0.5, max_iter=500).fit_transform(statistics)
    np.testing.assert_allclose(a, LatentFisherVector(max_iter=500).fit_transform(scaled), rtol=1e-8, atol=1e-10)


def as_cells(statistics):
    return changed(statistics, lambda a: np.stack([a[:30], a[30:]], axis=1))


def test_cells_have_their_own_prior_or_share_one(rng):
    _, statistics = draw_images(rng)
    cells = as_cells(statistics)
    own = LatentFisherVector(per_cell=True).fit_transform(cells)
    assert own.shape == (30, 2, K * (1 + 4 * D))
    alone = LatentFisherVector().fit(changed(cells, lambda a: a[:, 1]))
    np.testing.assert_allclose(own[:, 1], alone.transform(statistics[30:]), rtol=0.05, atol=0.05)
    shared = LatentFisherVector(per_cell=False).fit(cells)
    assert shared.prior_.alpha.shape == (1, K)
    expected = LatentFisherVector().fit(statistics)
    np.testing.assert_allclose(shared.transform(cells)[:, 0], expected.transform(statistics[:30]), rtol=1e-5, atol=1e-6)


def test_an_empty_cell_encodes_as_zeros_and_an_empty_image_is_an_error(rng):
    _, statistics = draw_images(rng)
    cells = as_cells(statistics)
    encoder = LatentFisherVector().fit(cells)
    for a in cells.arrays().values():
        a[4, 1] = 0
    codes = encoder.transform(cells)
    np.testing.assert_allclose(codes[4, 1], 0, atol=1e-9)
    assert np.abs(codes[4, 0]).max() > 0.1
    cells.s0[4, 0] = 0
    with pytest.raises(ValueError, match="image 4 of 30 is empty"):
        encoder.transform(cells)


def test_more_descriptors_of_a_component_are_discounted(rng):
    prior = random_prior(rng)
    x = prior.m[0, 0] + 1.0
    sizes = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    s0 = np.zeros((7, 1, K))
    s0[:, 0, 0] = sizes
    s1, s2 = s0[..., None] * x, s0[..., None] * x**2
    shift = latent_gradient(s0, s1, s2, prior, blocks=["alpha"])[:, 0, 0]
    assert (np.diff(shift) > 0).all()
    assert (np.diff(shift, 2) < 0).all()


def test_constant_dimension_and_unused_component_stay_finite(rng):
    _, statistics = draw_images(rng, 30)
    s0, s1, s2 = (a.copy() for a in statistics.arrays().values())
    s1[:, :, 1], s2[:, :, 1] = 2 * s0, 4 * s0
    s0[:, 2], s1[:, 2], s2[:, 2] = 0, 0, 0
    spoilt = replace(statistics, s0=s0, s1=s1, s2=s2)
    encoder = LatentFisherVector(tol=1e-4).fit(spoilt)
    assert np.isfinite(encoder.transform(spoilt)).all()
    assert (np.diff(encoder.free_energy_) >= 0).all()


def test_bad_statistics_are_named(rng):
    _, statistics = draw_images(rng, 30)
    encoder = LatentFisherVector().fit(statistics)
    with pytest.raises(ValueError, match=r"fitted on .*\(1, 3, 2\), got \(1, 2, 2\)"):
        encoder.transform(changed(statistics, lambda a: a[:, :2]))
    statistics.s2[11, 0, 1] = np.nan
    with pytest.raises(ValueError, match="image 11 of 30 has NaN"):
        encoder.transform(statistics)
    statistics.s0[5, 0] = -1
    with pytest.raises(ValueError, match="image 5 of 30 has negative"):
        encoder.transform(statistics)
    with pytest.raises(ValueError, match="'blocks' parameter of LatentFisherVector must be"):
        LatentFisherVector(blocks=["means"]).fit(draw_images(rng, 5)[1])


def test_too_few_iterations_give_a_warning(rng):
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        LatentFisherVector(max_iter=1, tol=0).fit(draw_images(rng, 20)[1])


def test_full_inference_follows_the_printed_updates_and_raises_the_bound(rng):
    prior = random_prior(rng)
    x = rng.normal(0, 2, (25, D)) + 10
    s0, s1, s2, history = infer_bag(x, prior, max_iter=30, tol=0)
    q, bounds = tuple(values(prior)), []
    for _ in range(len(history)):
        r = oracle.responsibilities(x, q)
        s = oracle.statistics(x, r)
        q = oracle.posterior(*s, *values(prior))
        bounds.append(oracle.free_energy(x, r, q, *values(prior)))
    np.testing.assert_allclose(history, bounds, rtol=1e-8)
    assert (np.diff(history) > -1e-9).all()
    for found, expected in zip((s0, s1, s2), s):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_lengthened_steps_get_further_than_as_many_plain_em_steps(rng):
    _, statistics = draw_images(rng)
    s = tuple(a[:, None] for a in statistics.arrays().values())
    prior = start = replace(random_prior(rng), alpha=LatentFisherVector().fit(statistics).prior_.alpha)
    for _ in range(12):
        (m, *logs), _ = em_step(*s, 1.0, prior, np.zeros(D))
        prior = LatentPrior(start.alpha, m, *np.exp(logs))
    with pytest.warns(ConvergenceWarning):
        fitted, _ = fit_prior(*s, start, max_iter=12, tol=0)
    assert free_energy(*s, fitted).sum() > free_energy(*s, prior).sum() > free_energy(*s, start).sum()
