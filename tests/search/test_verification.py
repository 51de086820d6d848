# SPDX-License-Identifier: BSD-3-Clause
"""Results that are looked at again: local features that agree, queries that are expanded."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image

from patchbag import SearchIndex
from patchbag.search import encoder as encoder_module
from patchbag.search.verification import LEAST, agreeing_matches, local_features, match_features, verified_first


def scene(seed: int, side: int = 240) -> np.ndarray:
    """Rectangles and discs at random: corners to hold on to."""
    rng = np.random.default_rng(seed)
    image = np.full((side, side, 3), 128, np.uint8)
    for _ in range(60):
        x, y, r = (int(number) for number in rng.integers(0, side, 3) // (1, 1, 8))
        color = tuple(int(number) for number in rng.integers(0, 256, 3))
        if rng.random() < 0.5:
            cv2.rectangle(image, (x, y), (x + r + 4, y + r + 4), color, -1)
        else:
            cv2.circle(image, (x, y), r // 2 + 3, color, -1)
    return image


def seen_aslant(image: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    moved = corners + np.array([[20, 10], [-8, 25], [-25, -12], [12, -20]], np.float32)
    return cv2.warpPerspective(image, cv2.getPerspectiveTransform(corners, moved), (width, height))


def test_features_of_the_same_scene_agree_from_another_side_and_those_of_others_do_not():
    here = local_features(scene(0))
    assert agreeing_matches(here, local_features(seen_aslant(scene(0)))) >= 2 * LEAST
    assert agreeing_matches(here, local_features(scene(1))) < LEAST
    mirrored = np.ascontiguousarray(scene(0)[:, ::-1])
    assert agreeing_matches(here, local_features(mirrored)) < LEAST


def test_images_without_features_match_nothing():
    flat = local_features(np.full((64, 64), 90, np.uint8))
    assert len(flat.points) == 0 and len(match_features(flat, local_features(scene(0)))) == 0
    assert agreeing_matches(local_features(scene(0)), flat) == 0


def test_matches_are_nearest_by_a_margin_and_go_to_each_place_once():
    here, there = local_features(scene(2)), local_features(seen_aslant(scene(2)))
    pairs = match_features(here, there)
    assert len(set(pairs[:, 1])) == len(pairs) > LEAST
    for i, j in pairs[:20]:
        distances = np.sort(np.linalg.norm(there.descriptors - here.descriptors[i], axis=1))
        assert np.linalg.norm(there.descriptors[j] - here.descriptors[i]) == pytest.approx(distances[0], abs=1e-3)
        assert distances[0] < 0.81 * distances[1]


def test_what_is_not_verified_keeps_its_order():
    assert verified_first([3, 0, LEAST, 5, 99]).tolist() == [4, 2, 0, 1, 3]


@pytest.fixture
def photos(tmp_path, own_store, monkeypatch):
    """Vectors are angles in the plane that the names of the files say, in degrees."""

    def vector(source, model="", name=None):
        angle = np.radians(float(str(name).rpartition("_")[2].removesuffix(".png")))
        return np.array([np.cos(angle), np.sin(angle)]) ** 2 * np.sign([np.cos(angle), np.sin(angle)])

    monkeypatch.setattr("patchbag.features.networks.preparation.pooled_vector", vector)
    monkeypatch.setattr(encoder_module, "QUICK", 10**6)
    monkeypatch.setattr("patchbag.search.axes.SHRINK", 1e9)
    folder = tmp_path / "photos"
    folder.mkdir()
    pictures = {"query_0": scene(0), "other_10": scene(1), "other_14": scene(3), "same_30": seen_aslant(scene(0))}
    pictures |= {"far_-32": scene(4), "beyond_42": scene(5)}
    for name, pixels in pictures.items():
        Image.fromarray(pixels).save(folder / f"{name}.png")
    return folder


def found(matches) -> list[str]:
    return [match.image.rpartition("/")[2].removesuffix(".png") for match in matches]


def test_the_same_scene_comes_first_when_results_are_verified(photos):
    index = SearchIndex(photos).update()
    plain = index.search(photos / "query_0.png", top=3)
    assert found(plain) == ["other_10", "other_14", "same_30"] and plain[0].points is None
    verified = index.search(photos / "query_0.png", top=2, verify=4)
    assert found(verified) == ["same_30", "other_10"]
    assert verified[0].points >= LEAST > verified[1].points
    assert found(index.search(photos / "query_0.png", top=2, verify=1)) == ["other_10", "other_14"]


def test_an_expanded_query_moves_towards_what_was_found(photos):
    index = SearchIndex(photos).update()
    assert found(index.search(photos / "query_0.png", top=5)).index("far_-32") == 3
    expanded = found(index.search(photos / "query_0.png", top=5, expand=3))
    assert expanded.index("beyond_42") < expanded.index("far_-32")
    # of the first three only the same scene is verified, and leads farther
    both = index.search(photos / "query_0.png", top=5, expand=3, verify=5)
    assert found(both)[0] == "same_30"
    words = SearchIndex(photos, "smp", n_jobs=1)
    with pytest.raises(ValueError, match="no angles"):
        words.update().search(photos / "query_0.png", expand=2)
