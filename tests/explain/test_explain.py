"""The score of a class is the sum of what patches, or training images, say, and the rest."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from patchbag import (
    VLAD,
    BagOfWords,
    BagPCA,
    Bags,
    Channel,
    Channels,
    FisherVector,
    GaussianProcessClassifier,
    KernelUnion,
    LinearClassifier,
    MeanDescriptor,
    Normalizer,
    PolyaVector,
    PoolClassifier,
    PoolLearner,
    UniversalMixture,
    UniversalStatistics,
    make_recipe,
)
from patchbag.classifiers.gaussian_process.condensed import condensed
from patchbag.explain.heat import heat_map
from patchbag.explain.images import linear_shares, process_shares
from patchbag.explain.patches import explain_patches, explain_pool
from patchbag.similarity.inner_product import InnerProductKernel
from patchbag.stages import fisher, pooled

TOLERANCE = 1e-4


def labelled_bags(n_classes=3, per_class=10, seed=0, dtype=np.float32):
    """Bags whose classes differ in the share of the clusters that their descriptors are from; far from the origin."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(20, 3, (6, 8))
    labels = np.repeat([f"class {c}" for c in range(n_classes)], per_class)
    arrays, positions = [], []
    for label in np.repeat(np.arange(n_classes), per_class):
        shares = np.ones(6) / 9 + np.eye(6)[label] / 3
        n = rng.integers(60, 120)
        arrays.append((centres[rng.choice(6, n, p=shares)] + rng.normal(0, 1, (n, 8))).astype(dtype))
        positions.append(rng.random((n, 2)))
    return Bags.from_list(arrays, positions), labels


def statistics(pyramid=None, assignment="soft"):
    return UniversalStatistics(UniversalMixture(6, random_state=0), BagPCA(5, random_state=0), pyramid, assignment)


SUMS = {
    "words": [("statistics", statistics()), ("encoding", BagOfWords()), ("normalize", Normalizer(["power", "l2"]))],
    "counts": [("statistics", statistics(assignment="hard")), ("encoding", BagOfWords(normalize=False))],
    "fisher pyramid": [
        ("statistics", statistics(["1x1", "2x2", "3x1"])),
        ("encoding", FisherVector(("weights", "means", "variances"))),
        ("normalize", Normalizer(["power", "l2"])),
    ],
    "whitened fisher": [
        ("statistics", statistics()),
        ("encoding", FisherVector()),
        ("normalize", Normalizer(["whiten", "power", "l2"])),
    ],
    "vlad": [
        ("statistics", statistics(assignment="nearest")),
        ("encoding", VLAD(mass=True)),
        ("normalize", Normalizer(["intra", "l2"], n_blocks=6)),
    ],
    "mean": [("projection", BagPCA(6, random_state=0)), *pooled()],
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", SUMS)
def test_patches_and_rest_add_up_to_the_score_of_a_linear_classifier(name, n_classes):
    bags, labels = labelled_bags(n_classes)
    model = Pipeline([*SUMS[name], ("classifier", LinearClassifier(random_state=0))]).fit(bags, labels)
    for i in (0, 15):
        found = explain_patches(model, bags[i : i + 1])
        score = model.decision_function(bags[i : i + 1])
        expected = score[0] if n_classes > 2 else np.array([-score[0], score[0]]) / 2
        assert found.parts[0].values.shape == (bags.sizes[i], n_classes)
        np.testing.assert_allclose(found.scores, expected, atol=TOLERANCE)


def test_a_patch_says_what_the_sum_loses_without_it():
    """Without normalisation, and with a fixed number of patches, taking one away is what its share says."""
    bags, labels = labelled_bags()
    steps = [("statistics", statistics()), ("encoding", BagOfWords(normalize=False))]
    model = Pipeline([*steps, ("classifier", LinearClassifier(random_state=0))]).fit(bags, labels)
    found = explain_patches(model, bags[4:5])
    without = Bags(bags[4][1:], [0, len(bags[4]) - 1])
    lost = (model.decision_function(bags[4:5]) - model.decision_function(without))[0]
    np.testing.assert_allclose(found.parts[0].values[0], lost, atol=TOLERANCE)


@pytest.mark.parametrize("options", [{}, {"likelihood": "probit"}, {"n_inducing": 8}])
@pytest.mark.parametrize("steps", [[("kernel", InnerProductKernel())], []])
def test_patches_and_rest_add_up_to_the_soft_labels_of_a_gaussian_process(steps, options):
    bags, labels = labelled_bags()
    kernel = "precomputed" if steps else InnerProductKernel()
    process = GaussianProcessClassifier(kernel, random_state=0, **options)
    model = Pipeline([*SUMS["fisher pyramid"], *steps, ("classifier", process)]).fit(bags, labels)
    found = explain_patches(model, bags[7:8], ["class 2", "class 0"])
    assert found.classes.tolist() == ["class 2", "class 0"]
    np.testing.assert_allclose(found.scores, model.decision_function(bags[7:8])[0][[2, 0]], atol=TOLERANCE)


def test_several_kinds_of_features_have_a_part_each():
    bags, labels = labelled_bags()
    colour, _ = labelled_bags(seed=1)

    def branch(name, steps):
        return name, Pipeline([("channel", Channel(name)), *steps, ("kernel", InnerProductKernel())])

    union = KernelUnion([branch("sift", SUMS["fisher pyramid"]), branch("colour", SUMS["mean"])])
    model = Pipeline([("kernels", union), ("classifier", GaussianProcessClassifier(random_state=0))])
    channels = Channels(sift=bags, colour=colour)
    model.fit(channels, labels)
    found = explain_patches(model, channels[3:4])
    assert [part.kind for part in found.parts] == ["sift", "colour"]
    np.testing.assert_allclose(found.scores, model.decision_function(channels[3:4])[0], atol=TOLERANCE)
    small = explain_patches(condensed(model), channels[3:4])  # sums of training vectors say the same of every patch
    for part, same in zip(found.parts, small.parts):
        np.testing.assert_allclose(same.values, part.values, atol=TOLERANCE)
    np.testing.assert_allclose(small.rest, found.rest, atol=TOLERANCE)


def test_recipes_explain_images(textures):
    images, labels = textures
    recipe = make_recipe("fisher").fit(images, labels)
    found = explain_patches(recipe, images[5:6])
    np.testing.assert_allclose(found.scores, recipe.decision_function(images[5:6])[0], atol=TOLERANCE)
    assert len(found.parts[0].positions) == len(found.parts[0].values)


def test_the_map_of_a_network_explains_a_pool_of_pooled_vectors():
    rng = np.random.default_rng(3)
    bags, labels = labelled_bags(3, 20, seed=3)
    vectors = MeanDescriptor().fit_transform(bags)
    learner = PoolLearner(random_state=0, n_neighbors=5).fit(vectors)
    for i in rng.permutation(60)[:15]:
        learner.teach([i], [labels[i]])
    found = explain_pool(learner, bags[8:9])
    scores = (learner.graph_.prepare(vectors[8:9]) @ learner.beliefs_.classifier())[0]
    np.testing.assert_allclose(found.scores, scores, atol=TOLERANCE)
    assert found.classes.tolist() == [learner.classes_[c] for c in learner._columns]

    classifier = Pipeline([("pool", MeanDescriptor()), ("classifier", PoolClassifier(power=0.5, random_state=0))])
    classifier.fit(bags, [label if i % 3 == 0 else None for i, label in enumerate(labels)])
    found = explain_patches(classifier, bags[8:9])
    np.testing.assert_allclose(found.scores, classifier.decision_function(bags[8:9])[0], atol=TOLERANCE)


def test_what_is_no_sum_over_patches_says_so():
    bags, labels = labelled_bags()
    steps = [("statistics", statistics()), ("encoding", PolyaVector())]
    model = Pipeline([*steps, ("classifier", LinearClassifier(random_state=0))]).fit(bags, labels)
    with pytest.raises(ValueError, match="PolyaVector is no sum over patches"):
        explain_patches(model, bags[:1])
    model = Pipeline([*SUMS["words"], ("classifier", LinearClassifier(random_state=0))]).fit(bags, labels)
    with pytest.raises(ValueError, match="one image, got 2"):
        explain_patches(model, bags[:2])
    with pytest.raises(ValueError, match="classes must be some of"):
        explain_patches(model, bags[:1], ["dog"])


@pytest.mark.parametrize("options", [{}, {"likelihood": "probit"}, {"n_inducing": 8}])
def test_training_images_and_rest_add_up_to_the_soft_label(options):
    bags, labels = labelled_bags()
    vectors = Pipeline(SUMS["mean"]).fit_transform(bags)
    process = GaussianProcessClassifier(InnerProductKernel(), random_state=0, **options).fit(vectors, labels)
    shares = process_shares(process, vectors[4:5])
    np.testing.assert_allclose(shares.scores, process.decision_function(vectors[4:5])[0], atol=TOLERANCE)
    assert len(shares.deciding(0, 5)) == 5
    if not options:
        alike = labels[shares.deciding(0, 3)]
        assert (alike == "class 0").any()


def test_training_images_of_a_linear_classifier_are_those_of_its_dual():
    bags, labels = labelled_bags()
    vectors = Pipeline(SUMS["fisher pyramid"]).fit_transform(bags).astype(np.float64)
    model = LinearClassifier("least-squares", C=1.0, random_state=0).fit(vectors, labels)
    shares = linear_shares(model.coef_, model.intercept_, vectors, vectors[3])
    np.testing.assert_allclose(shares.scores, model.decision_function(vectors[3:4])[0], atol=TOLERANCE)
    signs = np.where(labels[:, None] == model.classes_, 1.0, -1.0)
    dual = np.linalg.solve(vectors @ vectors.T + np.eye(len(vectors)), signs - signs.mean(axis=0))
    np.testing.assert_allclose(shares.values, (vectors @ vectors[3])[:, None] * dual, atol=1e-6)


def test_images_of_a_pool_add_up_to_its_scores():
    bags, labels = labelled_bags(3, 20, seed=3)
    learner = PoolLearner(random_state=0, n_neighbors=5).fit(MeanDescriptor().fit_transform(bags))
    for i in range(0, 60, 5):
        learner.teach([i], [labels[i]])
    images, values = learner.beliefs_.shares(learner.graph_.vectors[8])
    np.testing.assert_allclose(values.sum(axis=0), learner.beliefs_.scores()[8], atol=TOLERANCE)
    assert images[:12].tolist() == list(range(0, 60, 5))
    taught = values[12:][np.isin(images[12:], range(0, 60, 5))]
    assert not taught.any()  # an image with a label speaks once


@pytest.mark.parametrize("shape", [(24, 32), (1, 5), (7, 1)])
def test_the_heat_map_holds_the_sum_of_the_patches(rng, shape):
    positions, values = rng.random((200, 2)), rng.normal(size=200)
    positions[:4] = [[0, 0], [1, 1], [0, 1], [1, 0]]
    found = heat_map(positions, values, shape)
    assert found.shape == shape
    np.testing.assert_allclose(found.sum(), values.sum(), atol=1e-9)


def test_the_heat_map_is_hot_where_the_patch_is():
    found = heat_map(np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([2.0, -1.0]), (20, 30))
    row, column = np.unravel_index(found.argmax(), found.shape)
    assert row <= 3 and column >= 25
    row, column = np.unravel_index(found.argmin(), found.shape)
    assert row >= 16 and column <= 4
    whole = heat_map(None, np.array([1.0]), (4, 4))
    assert np.ptp(whole) == 0 and whole.sum() == pytest.approx(1)


def test_recipes_of_a_network_are_sums_over_patches_too():
    bags, labels = labelled_bags()
    for steps in (fisher(8, 4), fisher(64)):
        steps[0][1].set_params(mixture__n_components=3, mixture__random_state=0, projection__n_components=4)
        model = Pipeline([*steps, ("classifier", LinearClassifier(random_state=0))]).fit(bags, labels)
        found = explain_patches(model, bags[2:3])
        np.testing.assert_allclose(found.scores, model.decision_function(bags[2:3])[0], atol=TOLERANCE)
