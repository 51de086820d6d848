# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from patchbag.cli.pictures import MEANS, best_means, half_blocks, iterm, kitty, picture, sixels

IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 33, 3), np.uint8))


@pytest.mark.parametrize(
    ("environment", "means"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "xterm-256color"}, "blocks"),
        ({"TERM": "dumb"}, "none"),
    ],
)
def test_the_means_are_those_of_the_terminal(environment, means):
    assert best_means(environment, True) == means and best_means(environment, False) == "none"


def test_half_blocks_have_two_pixels_each():
    flag = Image.fromarray(np.repeat([[[255, 0, 0]], [[0, 0, 255]]], 8, axis=1).astype(np.uint8).repeat(4, axis=0))
    text = half_blocks(flag, 8)
    assert text.count("▀") == 8 * 4 and text.splitlines()[0].startswith("\x1b[38;2;255;0;0;48;2;255;0;0m▀")
    assert text.splitlines()[-1].startswith("\x1b[38;2;0;0;255;48;2;0;0;255m▀")
    assert half_blocks(Image.new("RGB", (1, 1)))


def test_kitty_and_iterm_get_the_image_itself():
    parts = re.findall(r"\x1b_G(?:a=T,f=100,)?m=([01]);([^\x1b]*)\x1b\\", kitty(IMAGE))
    assert [m for m, _ in parts] == ["1"] * (len(parts) - 1) + ["0"]
    sent = base64.b64decode("".join(data for _, data in parts))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(sent))), np.asarray(IMAGE))
    data = re.fullmatch(r"\x1b]1337;File=inline=1;size=(\d+):(.*)\x07", iterm(IMAGE))
    sent = base64.b64decode(data[2])
    assert len(sent) == int(data[1]) and Image.open(io.BytesIO(sent)).size == IMAGE.size


def test_sixels_decode_to_the_image_in_fewer_colours():
    text = sixels(IMAGE)
    body = text.removeprefix("\x1bPq").removesuffix("\x1b\\")
    colors = {int(i): [int(r), int(g), int(b)] for i, r, g, b in re.findall(r"#(\d+);2;(\d+);(\d+);(\d+)", body)}
    bands = re.sub(r'^"[\d;]*|#\d+;2;\d+;\d+;\d+', "", body).split("-")[:-1]
    decoded = np.zeros((6 * len(bands), 33, 3))
    for top, band in enumerate(bands):
        for line in band.split("$"):
            color, values = re.fullmatch(r"#(\d+)(.*)", line).groups()
            for x, value in enumerate(values):
                for bit in range(6):
                    if (ord(value) - 63) >> bit & 1:
                        decoded[6 * top + bit, x] = colors[int(color)]
    expected = np.asarray(IMAGE.quantize(64).convert("RGB")).astype(int) * 100 // 255
    np.testing.assert_array_equal(decoded[:20], expected)


def test_a_picture_that_cannot_be_read_is_nothing(tmp_path):
    (tmp_path / "x.png").write_text("text")
    IMAGE.save(tmp_path / "y.png")
    assert picture(tmp_path / "x.png", "blocks") == "" == picture(tmp_path / "y.png", "none")
    assert all(picture(tmp_path / "y.png", means) for means in MEANS[1:-1])
