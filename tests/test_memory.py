"""What several pipelines have in common is computed once."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from patchbag import Bags
from patchbag.memory import StepMemory, chain_keys, content_key, predict_in_chunks

CALLS: list[str] = []


class Times(TransformerMixin, BaseEstimator):
    def __init__(self, factor=1.0, note=""):
        self.factor = factor
        self.note = note

    def fit(self, X, y=None):
        CALLS.append(f"fit {self.factor}")
        self.fitted_ = True
        return self

    def transform(self, X):
        CALLS.append(f"transform {self.factor}")
        return np.asarray(X) * self.factor


def pipeline(*factors, C=1.0):
    return Pipeline([*((f"t{i}", Times(f)) for i, f in enumerate(factors)), ("classifier", LogisticRegression(C=C))])


@pytest.fixture
def data():
    CALLS.clear()
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b"], 20)
    return rng.normal(size=(40, 3)) + (y == "b")[:, None] * 2, y


def run(memory, name, X, y):
    model = memory.pipeline(name).fit(X, y)
    said = predict_in_chunks(model, "predict_proba", X, 16)
    memory.release(name)
    return said


def test_equal_first_steps_are_fitted_once_and_answers_are_those_of_the_plain_pipeline(data):
    X, y = data
    models = {"one": pipeline(2.0, 3.0), "two": pipeline(2.0, 3.0, C=0.1), "other": pipeline(2.0, 5.0)}
    memory = StepMemory(models)
    said = {name: run(memory, name, X, y) for name in memory.order()}
    assert CALLS.count("fit 2.0") == 1 and CALLS.count("fit 3.0") == 1 and CALLS.count("fit 5.0") == 1
    assert CALLS.count("transform 2.0") == 4  # training and three chunks, for three pipelines
    for name, model in models.items():
        np.testing.assert_allclose(said[name], model.fit(X, y).predict_proba(X))


def test_what_no_pipeline_waits_for_is_forgotten(data):
    X, y = data
    memory = StepMemory({"one": pipeline(2.0), "two": pipeline(2.0, C=0.1)})
    run(memory, "one", X, y)
    assert memory.used > 0
    run(memory, "two", X, y)
    assert memory.used == 0 and not memory.results
    alone = StepMemory({"one": pipeline(2.0)})
    alone.pipeline("one").fit(X, y)
    assert not alone.results


def test_pipelines_with_the_same_beginning_follow_each_other():
    memory = StepMemory({"a": pipeline(1.0, 2.0), "b": pipeline(3.0), "c": pipeline(1.0, 4.0), "d": pipeline(1.0, 2.0)})
    assert memory.order() == ["a", "d", "c", "b"]


def test_keys_tell_estimators_apart_whose_printed_form_is_the_same():
    long = "x" * 1000
    steps = [Pipeline([("t", Times(note=long + end + long)), ("c", LogisticRegression())]) for end in "ab"]
    assert str(steps[0]) == str(steps[1])
    assert chain_keys(steps[0]) != chain_keys(steps[1])


def test_described_bags_are_known_by_their_fingerprint():
    bags = Bags(np.zeros((4, 2)), [0, 2, 4])
    assert content_key(bags) == content_key(Bags(np.zeros((4, 2)), [0, 2, 4]))
    bags.fingerprint = "f"
    assert content_key(bags) == "f"
    assert content_key(bags[[0]]) == content_key(bags[[0]]) != content_key(bags[[1]])


def test_times_are_counted_by_step(data):
    X, y = data
    memory = StepMemory({"one": pipeline(2.0)})
    memory.pipeline("one").fit(X, y).predict(X)
    assert set(memory.seconds) == {"train t0", "test t0"}


def test_steps_that_pass_through_are_left_out(data):
    X, y = data
    model = pipeline(2.0, 3.0).set_params(t1="passthrough")
    np.testing.assert_allclose(run(StepMemory({"": model}), "", X, y), model.fit(X, y).predict_proba(X))
