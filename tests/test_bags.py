from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

from patchbag import BagOfWords, Bags, UniversalMixture, UniversalStatistics, as_bags
from patchbag.bags import concatenate, map_values


@pytest.fixture
def three() -> Bags:
    values = np.arange(12.0).reshape(6, 2)
    return Bags(values, [0, 1, 4, 6], values / 12)


def test_an_integer_gives_the_descriptors_of_one_bag(three):
    assert three[1].tolist() == [[2, 3], [4, 5], [6, 7]]
    assert three[-1].tolist() == [[8, 9], [10, 11]]


@pytest.mark.parametrize(
    "key, sizes",
    [
        (slice(0, 2), [1, 3]),
        (slice(2, 0), []),
        (slice(None, None, -1), [2, 3, 1]),
        ([2, 0], [2, 1]),
        (np.array([1, 1]), [3, 3]),
        (np.array([True, False, True]), [1, 2]),
        ((np.array([0, 2]), Ellipsis), [1, 2]),
        ([], []),
    ],
)
def test_slices_index_arrays_and_masks_give_bags_in_that_order(three, key, sizes):
    part = three[key]
    assert isinstance(part, Bags)
    assert part.sizes.tolist() == sizes
    order = np.arange(3)[key[0] if isinstance(key, tuple) else key] if sizes else []
    for mine, i in zip(part, order):
        assert np.array_equal(mine, three[int(i)])
    assert np.array_equal(part.positions, part.values / 12)


def test_an_index_outside_names_the_bag(three):
    with pytest.raises(IndexError, match="bag 3 of 3"):
        three[3]


def test_bags_stay_bags_through_a_split(bags):
    train, test, a, b = train_test_split(bags, np.arange(len(bags)), test_size=0.3, random_state=0)
    assert isinstance(train, Bags) and isinstance(test, Bags)
    assert np.array_equal(test[0], bags[int(b[0])])
    assert len(train) == len(a) == 21


class OnlyBags(TransformerMixin, BaseEstimator):
    """Fails unless it is handed Bags, in every fold."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X, y=None):
        assert isinstance(X, Bags)
        return self

    def __sklearn_is_fitted__(self):
        return True

    def transform(self, X):
        assert isinstance(X, Bags)
        return np.array([b.mean(axis=0) * self.scale for b in X])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_bags_stay_bags_through_pipeline_cross_validation_and_grid_search(bags, n_jobs):
    y = np.arange(len(bags)) % 2
    bags = bags.replace(bags.values + 5.0 * np.repeat(y, bags.sizes)[:, None])
    pipeline = make_pipeline(OnlyBags(), LogisticRegression())
    scores = cross_val_score(pipeline, bags, y, cv=3, n_jobs=n_jobs)
    assert scores.mean() == 1
    search = GridSearchCV(pipeline, {"onlybags__scale": [0.0, 1.0]}, cv=3, n_jobs=n_jobs).fit(bags, y)
    assert search.best_params_ == {"onlybags__scale": 1.0}


def test_grid_search_over_a_mixture_size_on_bags(bags):
    y = np.arange(len(bags)) % 2
    steps = make_pipeline(UniversalStatistics(UniversalMixture(2)), BagOfWords(), LogisticRegression())
    search = GridSearchCV(steps, {"universalstatistics__mixture__n_components": [2, 3]}, cv=2).fit(bags, y)
    assert search.best_estimator_[0].mixture_.n_components_ in (2, 3)


def test_concatenation_keeps_order_and_positions(three):
    both = three + three[[2]]
    assert both.sizes.tolist() == [1, 3, 2, 2]
    assert np.array_equal(both[3], three[2])
    assert np.array_equal(both.positions[-2:], three.positions[4:])
    assert concatenate([three, Bags.from_list(list(three))]).positions is None


def test_bags_of_different_dimensions_do_not_concatenate(three):
    with pytest.raises(ValueError, match=r"different dimensions \[2, 3\]"):
        three + Bags.from_list([np.zeros((2, 3))])


def test_chunks_cover_all_bags_and_a_large_bag_stands_alone(three):
    assert [c.sizes.tolist() for c in three.chunks(2)] == [[1], [3], [2]]
    assert [c.sizes.tolist() for c in three.chunks(4)] == [[1, 3], [2]]


def test_a_sample_is_reproducible_and_drawn_without_replacement(bags):
    a, b = bags.sample(50, 3), bags.sample(50, 3)
    assert np.array_equal(a, b)
    assert len(np.unique(a, axis=0)) == 50
    assert len(bags.sample(10**6)) == bags.values.shape[0]


def test_map_values_in_small_chunks_equals_one_call(bags):
    doubled = map_values(bags, lambda rows: rows * 2, max_rows=7)
    assert np.array_equal(doubled.values, bags.values * 2)
    assert doubled.positions is bags.positions


def test_saved_bags_open_memory_mapped(tmp_path, bags):
    bags.save(tmp_path / "b")
    again = Bags.load(tmp_path / "b")
    assert np.array_equal(Bags.open(tmp_path / "b").values, again.values)  # as it was once named
    assert isinstance(again.values, np.memmap) and isinstance(again.positions, np.memmap)
    assert np.array_equal(again.values, bags.values)
    assert np.array_equal(again[3], bags[3])
    assert not isinstance(Bags.load(tmp_path / "b", memory_map=False).values, np.memmap)


def test_a_bag_file_larger_than_memory_is_opened_not_read(tmp_path):
    small = Bags.from_list([np.zeros((4, 128), np.float32)]).save(tmp_path / "big")
    rows = 20_000_000  # 10 GB, as a sparse file
    np.lib.format.open_memmap(next(small.glob("values*")), "w+", np.float32, (rows, 128)).flush()
    np.save(next(small.glob("offsets*")), np.arange(0, rows + 1, 1000))
    opened = Bags.load(small)
    assert opened.values.nbytes > 10**10
    assert opened[19_999].shape == (1000, 128)


def test_bags_of_the_first_version_of_the_folder_still_open(tmp_path, bags):
    path = bags.save(tmp_path / "b")
    for name in ("values", "offsets", "positions"):
        next(path.glob(f"{name}-*")).rename(path / f"{name}.npy")
    (path / "bags.json").write_text(json.dumps({"format": "patchbag-bags", "version": 1, "positions": True}))
    assert np.array_equal(Bags.load(path).values, bags.values)
    bags[:3].save(path)
    assert len(Bags.load(path)) == 3 and not (path / "values.npy").exists()


def test_a_manifest_cannot_lead_out_of_its_folder(tmp_path, bags):
    path = bags.save(tmp_path / "b")
    manifest = json.loads((path / "bags.json").read_text())
    manifest["files"]["values"] = "../secret.npy"
    (path / "bags.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="does not name its arrays"):
        Bags.load(path)


def test_offsets_whose_differences_overflow_are_refused():
    with pytest.raises(ValueError, match="must not decrease"):
        Bags(np.zeros((4, 2)), np.array([0, 2**62, -(2**62) - 5, 4]))


def test_mapped_bags_can_be_saved_onto_their_own_folder(tmp_path, bags):
    path = bags.save(tmp_path / "b")
    mapped = Bags.load(path)
    mapped.save(path)
    for again in (mapped, Bags.load(path)):
        assert np.array_equal(again.values, bags.values)
        assert np.array_equal(again.positions, bags.positions)
    mapped[5:].save(path)
    assert np.array_equal(Bags.load(path).values, bags[5:].values)


def test_a_save_that_fails_leaves_the_old_bags_and_nothing_else(tmp_path, bags, monkeypatch):
    path = bags.save(tmp_path / "b")
    before = sorted(p.name for p in path.iterdir())
    calls = []

    def full_disk(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise OSError("no space left on device")
        return original(*args, **kwargs)

    original = np.save
    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(OSError, match="no space left"):
        bags[:3].save(path)
    assert len(Bags.load(path)) == 30
    assert np.array_equal(Bags.load(path).values, bags.values)
    assert sorted(p.name for p in path.iterdir()) == before


def test_saving_bags_without_positions_removes_those_of_the_old_ones(tmp_path, bags):
    path = bags.save(tmp_path / "b")
    Bags(bags.values, bags.offsets).save(path)
    assert Bags.load(path).positions is None
    assert not list(path.glob("positions*"))


@pytest.mark.parametrize("damage", ["missing", "foreign", "version", "truncated"])
def test_a_damaged_bag_folder_is_a_clear_error(tmp_path, bags, damage):
    path = bags.save(tmp_path / "b")
    if damage == "missing":
        (path / "bags.json").unlink()
    elif damage == "foreign":
        (path / "bags.json").write_text("[1]")
    elif damage == "version":
        (path / "bags.json").write_text(json.dumps({"format": "patchbag-bags", "version": 99}))
    else:
        values = next(path.glob("values*"))
        values.write_bytes(values.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"not a folder written|version 99|missing or damaged"):
        Bags.load(path)


def test_coercion_accepts_lists_and_equal_sized_arrays_and_refuses_a_table():
    assert as_bags([np.zeros((2, 3)), np.ones((1, 3))]).sizes.tolist() == [2, 1]
    assert as_bags(np.zeros((4, 5, 3))).sizes.tolist() == [5] * 4
    with pytest.raises(ValueError, match=r"pass \[X\]"):
        as_bags(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"bag 0 of 1 is 'photos/a.jpg', not an array .* described first"):
        as_bags(["photos/a.jpg"])
    with pytest.raises(TypeError, match="got int"):
        as_bags(3)
    with pytest.raises(ValueError, match=r"bag 1 of 2 has shape \(2, 4\)"):
        as_bags([np.zeros((2, 3)), np.zeros((2, 4))])


@pytest.mark.parametrize("offsets", [[0, 4], [1, 6], [0, 4, 3, 6], []])
def test_offsets_that_do_not_fit_are_refused(offsets):
    with pytest.raises(ValueError, match="offsets must"):
        Bags(np.zeros((6, 2)), offsets)


def test_positions_are_checked_bag_by_bag():
    arrays = [np.zeros((2, 3)), np.zeros((4, 3))]
    with pytest.raises(ValueError, match=r"positions of bag 0 of 2 have shape \(3, 2\), expected \(2, 2\)"):
        Bags.from_list(arrays, [np.zeros((3, 2)), np.zeros((3, 2))])
    with pytest.raises(ValueError, match="positions of 1 bags for 2 bags"):
        Bags.from_list(arrays, [np.zeros((6, 2))])
    with pytest.raises(ValueError, match=r"positions of bag 1 of 2 have shape \(8,\)"):
        Bags.from_list(arrays, [np.zeros((2, 2)), np.zeros(8)])
    with_empty = Bags.from_list([np.zeros((2, 3)), np.zeros((0, 3))], [[[0, 0], [1, 1]], []])
    assert with_empty.positions.tolist() == [[0, 0], [1, 1]]


def test_lists_of_numbers_are_coerced_values_and_positions_alike():
    one = Bags([[1, 2]], [0, 1], [[0, 0.5]])
    assert one.values.tolist() == [[1, 2]] and one.positions.tolist() == [[0, 0.5]]
    with pytest.raises(ValueError, match=r"positions must have shape \(1, 2\), got \(1, 3\)"):
        Bags([[1, 2]], [0, 1], [[0, 0, 0]])


def test_an_empty_bag_is_named():
    with pytest.raises(ValueError, match="bag 1 of 2 has no descriptors"):
        as_bags([np.zeros((2, 3)), np.zeros((0, 3))]).check_not_empty()


class Majority(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.repeat(self.classes_[0], len(X))


def test_len_and_shape_agree(bags):
    assert bags.shape == (len(bags),) == Majority().fit(bags, [0]).predict(bags).shape


def test_picked_bags_are_a_view_that_is_packed_when_all_values_are_asked_for():
    rows = np.arange(40.0).reshape(20, 2)
    bags = Bags(rows, [0, 3, 3, 10, 20], np.tile([0.25, 0.75], (20, 1)))
    bags.fingerprint = "described"
    picked = bags[[3, 0, 2]]
    assert picked._rows[0] is rows and picked.sizes.tolist() == [10, 3, 7]
    assert (
        picked.sample(5, 0).tolist()
        == bags[[3, 0, 2]].values[np.sort(np.random.RandomState(0).choice(20, 5, False))].tolist()
    )
    assert [chunk.values[0, 0] for chunk in picked.chunks(10)] == [20.0, 0.0]
    assert picked._rows[0] is rows
    np.testing.assert_array_equal(picked.values, np.concatenate([rows[10:], rows[:3], rows[3:10]]))
    assert picked.positions.shape == (20, 2) and picked._rows[0] is not rows
    np.testing.assert_array_equal(picked[1:][1], rows[3:10])
    assert picked.fingerprint == bags[[3, 0, 2]].fingerprint != bags[[0, 2, 3]].fingerprint


def test_a_view_travels_to_another_process_without_what_it_was_picked_from():
    bags = Bags(np.zeros((100_000, 4)), np.arange(0, 100_001, 10))
    assert len(pickle.dumps(bags[[5, 2]])) < 10_000
