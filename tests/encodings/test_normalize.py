from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from patchbag import Normalizer
from patchbag.storage.models import load, save


def test_whitening_uses_training_mean_and_deviation_only(rng):
    train, test = rng.normal(3, 2, (50, 4)), rng.normal(0, 1, (5, 4))
    fitted = Normalizer(["whiten"]).fit(train)
    assert np.allclose(fitted.transform(train).mean(axis=0), 0)
    assert np.allclose(fitted.transform(train).std(axis=0), 1)
    assert np.allclose(fitted.transform(test), (test - train.mean(axis=0)) / train.std(axis=0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_dimension_stays_zero_after_whitening(rng, dtype):
    x = rng.normal(size=(20, 3)).astype(dtype)
    x[:, 1] = dtype(0.1)
    fitted = Normalizer(["whiten"]).fit(x)
    assert not fitted.transform(x)[:, 1].any()
    assert not fitted.transform(x + dtype(1))[:, 1].any()
    assert np.isfinite(fitted.transform(x)).all()


def test_steps_run_in_the_order_given():
    x = np.array([[16.0, -9.0], [0.0, 0.0]])
    assert np.allclose(Normalizer(["power", "l2"]).fit_transform(x), [[0.8, -0.6], [0, 0]])
    assert np.allclose(Normalizer(["l2", "power"]).fit_transform(x)[0], np.sqrt([16, 9]) * [1, -1] / 337**0.25)
    assert np.allclose(Normalizer(["power"], exponent=0.25).fit_transform(x)[0], [2, -(9**0.25)])


def test_whitening_in_the_middle_sees_the_steps_before_it(rng):
    x = rng.normal(size=(30, 4)) ** 3
    y = Normalizer(["power", "whiten"]).fit_transform(x)
    assert np.allclose(y.std(axis=0), 1)
    assert np.allclose(Normalizer(["power", "whiten"]).fit(x).transform(x), y)


def test_idf_weighs_words_by_how_few_training_images_have_them(tmp_path):
    train = np.array([[0.5, 0.5, 0.0, 0.0], [0.2, 0.0, 0.8, 0.0], [1.0, 0.0, 0.0, 0.0]])
    fitted = Normalizer(["idf"]).fit(train)
    np.testing.assert_allclose(fitted.idf_, [0, np.log(3), np.log(3), 0])
    new = np.array([[0.1, 0.2, 0.3, 0.4]])
    np.testing.assert_allclose(fitted.transform(new), new * fitted.idf_)
    cells = Normalizer(["idf", "l2"]).fit(train[:, None].astype(np.float32))
    assert cells.idf_.shape == (1, 4) and cells.transform(train[:, None]).shape == (3, 4)
    model = Pipeline([("normalize", fitted)])
    save(model, tmp_path / "m.patchbag")
    np.testing.assert_array_equal(load(tmp_path / "m.patchbag").transform(new), fitted.transform(new))


def test_intra_normalisation_scales_each_block_on_its_own():
    x = np.array([[3.0, 4.0, 0.0, 5.0]])
    assert np.allclose(Normalizer(["intra"], n_blocks=2).fit_transform(x), [[0.6, 0.8, 0, 1]])
    with pytest.raises(ValueError, match="cannot be cut into 3"):
        Normalizer(["intra"], n_blocks=3).fit(x)
    with pytest.raises(ValueError, match="needs n_blocks"):
        Normalizer(["intra"]).fit(x)


def test_cells_are_joined_to_unit_length(rng):
    x = rng.normal(size=(6, 8, 10)).astype(np.float32)
    y = Normalizer().fit_transform(x)
    assert y.shape == (6, 80) and y.dtype == np.float32
    assert np.allclose(np.linalg.norm(y, axis=1), 1, atol=1e-6)
    assert np.allclose(Normalizer([]).fit_transform(x), x.reshape(6, 80) / 8**0.5)


def test_bad_input_is_a_clear_error(rng):
    x = rng.normal(size=(4, 3))
    with pytest.raises(ValueError, match="'steps' parameter of Normalizer must be"):
        Normalizer(["cube"]).fit(x)
    with pytest.raises(ValueError, match="image 2 has NaN"):
        Normalizer().fit(np.where(np.arange(4)[:, None] == 2, np.nan, x))
    with pytest.raises(ValueError, match="fitted on encodings"):
        Normalizer().fit(x).transform(x[:, :2])
