"""Training whose vectors stay on disk gives a categorizer like any other."""

from __future__ import annotations

import numpy as np
import pytest

from cli.commands import run
from patchbag import Categorizer, runtime_context, streaming
from patchbag.classifiers import stochastic
from patchbag.streaming import fit_streamed

SMALL = {"recipe__statistics__mixture__n_components": 4, "recipe__statistics__projection__n_components": 16}


@pytest.fixture(scope="module")
def pictures(textures):
    images, labels = textures
    order = np.random.default_rng(0).permutation(len(images))
    return [images[i] for i in order], np.asarray(labels)[order]


def small(recipe: str) -> Categorizer:
    return Categorizer(recipe).set_params(**SMALL)


@pytest.mark.parametrize(("in_memory", "machines"), [(2 << 30, "LinearClassifier"), (0, "StochasticLinearClassifier")])
def test_a_streamed_categorizer_is_as_accurate_and_is_saved_whole(pictures, tmp_path, monkeypatch, in_memory, machines):
    monkeypatch.setattr(streaming, "IN_MEMORY", in_memory)
    images, labels = pictures
    half = len(images) // 2
    usual = small("fisher").fit(images[:half], labels[:half])
    streamed = small("fisher")
    found = fit_streamed(streamed, images[:half], labels[:half], tmp_path / "vectors.npy")
    assert found.vectors.dtype == np.float16 and len(found.vectors) == half
    there = [model.score(images[half:], labels[half:]) for model in (usual, streamed)]
    assert there[1] >= there[0] - 0.05
    assert type(streamed.recipe_[-1]).__name__ == machines
    judged = streamed.judge(images[half:])
    np.testing.assert_allclose(judged.probabilities.sum(axis=1), 1)
    loaded = Categorizer.load(streamed.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.judge(images[half:]).probabilities, judged.probabilities)
    with runtime_context(n_jobs=2):
        again = small("fisher")
        fit_streamed(again, images[:half], labels[:half], tmp_path / "again.npy")
    assert again.save(tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_the_mixture_is_learned_from_a_sample_and_broken_images_are_left_out(pictures, tmp_path):
    images, labels = pictures
    given = [*images[:20], b"broken", *images[20:]]
    said = np.array([*labels[:20], labels[0], *labels[20:]])
    seen = []
    found = fit_streamed(
        small("words"),
        given,
        said,
        tmp_path / "v.npy",
        sample=20,
        on_error="skip",
        progress=lambda done, n: seen.append(n),
    )
    assert [one.index for one in found.failures] == [20] and 20 not in found.kept
    assert seen == [20] * 20 + [len(given)] * len(given)


@pytest.mark.parametrize("recipe", ["auto", "gmm-ppk", "gp-fisher", "mlnn-words"])
def test_recipes_of_kernels_are_refused_before_an_image_is_read(recipe, tmp_path):
    with pytest.raises(ValueError, match="cannot be streamed"):
        fit_streamed(Categorizer(recipe), ["no file"], ["a"], tmp_path / "v.npy")


def test_train_streams_from_the_shell_and_leaves_nothing_in_the_store(picture_folder, tmp_path, own_store):
    (picture_folder / "bars" / "broken.png").write_bytes(b"no image")
    small = [f"--set=statistics.{name}.n_components={n}" for name, n in (("mixture", 4), ("projection", 16))]
    model = tmp_path / "m.patchbag"
    arguments = ["train", picture_folder, "--recipe", "words", "--stream", *small, "-o", model]
    result = run(*arguments)
    (picture_folder / "bars" / "broken.png").unlink()
    assert result.exit_code == 0, result.output
    assert "broken.png" in result.output
    assert not list(tmp_path.rglob("*.npy")) and not list(tmp_path.rglob("*.bin"))
    one = next((picture_folder / "bars").glob("*.png"))
    said = run("predict", model, one)
    assert said.exit_code == 0 and "bars" in said.output
    refused = run("train", picture_folder, "--stream", "-o", model)
    assert refused.exit_code != 0 and "cannot be streamed" in str(refused.exception)


def test_vectors_at_an_address_give_the_same_answers_and_are_removed(pictures, picture_folder, tmp_path, monkeypatch):
    pytest.importorskip("zarr")
    images, labels = pictures
    usual, shared = small("fisher"), small("fisher")
    fit_streamed(usual, images, labels, tmp_path / "vectors.npy")
    found = fit_streamed(shared, images, labels, str(tmp_path / "vectors.zarr"))
    assert sorted(found.kept) == list(range(len(images)))
    np.testing.assert_allclose(shared.predict_proba(images), usual.predict_proba(images), atol=0.01)
    monkeypatch.setattr(streaming, "IN_MEMORY", 0)
    monkeypatch.setattr(stochastic, "PART", 20)
    parted = small("fisher")
    fit_streamed(parted, images, labels, str(tmp_path / "parts.zarr"))
    assert type(parted.recipe_[-1]).__name__ == "StochasticLinearClassifier"
    assert parted.score(images, labels) > 0.9
    (place := tmp_path / "shared").mkdir()
    settings = [f"--set=statistics.{name}.n_components={n}" for name, n in (("mixture", 4), ("projection", 16))]
    asked = ["train", picture_folder, "--recipe", "words", *settings, "-o", tmp_path / "m", "--vectors", place]
    result = run(*asked, "--stream")
    assert result.exit_code == 0, result.output
    assert not list(place.iterdir())
    refused = run(*asked)
    assert refused.exit_code != 0 and "give both" in str(refused.exception)
