# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import os
import signal
import struct
import threading
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from patchbag.images.loading import ImageError, load_image


@pytest.fixture
def rgb():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)


def encoded(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_grey_is_pillows_luminance_from_every_kind_of_source(rgb, tmp_path):
    picture = Image.fromarray(rgb)
    picture.save(tmp_path / "a.png")
    expected = np.asarray(picture.convert("L"))
    for source in (tmp_path / "a.png", str(tmp_path / "a.png"), encoded(picture), picture, rgb):
        loaded = load_image(source)
        assert loaded.array.dtype == np.uint8
        np.testing.assert_array_equal(loaded.array, expected)
        assert (loaded.original_size, loaded.scale) == ((30, 20), 1.0)
        np.testing.assert_array_equal(load_image(source, mode="rgb").array, rgb)


def test_luminance_follows_the_written_formula(rgb):
    r, g, b = (rgb[..., c].astype(int) for c in range(3))
    np.testing.assert_array_equal(load_image(rgb).array, (19595 * r + 38470 * g + 7471 * b + 32768) >> 16)


def test_the_name_is_the_path(tmp_path, rgb):
    path = tmp_path / "a.png"
    Image.fromarray(rgb).save(path)
    assert load_image(path).name == str(path)
    assert load_image(path, name="upload").name == "upload"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_gives_the_upright_picture(orientation, tmp_path):
    upright = np.zeros((16, 24, 3), np.uint8)
    upright[:8, :8] = 255
    # what a camera held that way stores, per the EXIF definition of 0th row and 0th column
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: upright.transpose(1, 0, 2)[::-1],
        7: upright.transpose(1, 0, 2)[::-1, ::-1],
        8: upright.transpose(1, 0, 2)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "a.png", exif=exif)
    loaded = load_image(tmp_path / "a.png", mode="rgb")
    np.testing.assert_array_equal(loaded.array, upright)
    assert loaded.original_size == (24, 16)
    small = load_image(tmp_path / "a.png", max_side=12)
    assert small.array.shape == (8, 12)
    assert small.scale == 0.5


def test_alpha_is_composited_on_white():
    rgba = np.zeros((8, 8, 4), np.uint8)
    rgba[:, 4:, 3] = 255  # left half transparent black, right half opaque black
    expected = np.where(np.arange(8) < 4, 255, 0) * np.ones((8, 1))
    picture = Image.fromarray(rgba)
    palette = Image.fromarray(np.repeat([[0, 0, 0, 0, 1, 1, 1, 1]], 8, axis=0).astype(np.uint8)).convert("P")
    palette.putpalette([9, 9, 9, 0, 0, 0])
    sources = {
        "RGBA": encoded(picture),
        "LA": encoded(picture.convert("LA")),
        "palette, one transparent colour": encoded(palette, transparency=0),
        "palette, alpha per colour": encoded(palette, transparency=b"\x00\xff"),
        "array": rgba,
        "float array": rgba / 255,
    }
    for name, source in sources.items():
        np.testing.assert_array_equal(load_image(source).array, expected, err_msg=name)
        np.testing.assert_array_equal(load_image(source, mode="rgb").array[..., 1], expected, err_msg=name)


def test_half_transparent_is_half_way_to_white():
    rgba = np.full((8, 8, 4), 0, np.uint8)
    rgba[..., 3] = 51
    assert np.all(load_image(rgba).array == 204)


def test_palette_and_cmyk_and_one_bit_show_their_colours(rgb):
    flat = np.zeros((8, 8, 3), np.uint8) + np.array([200, 30, 90], np.uint8)
    palette = encoded(Image.fromarray(flat).convert("P", palette=Image.Palette.ADAPTIVE))
    np.testing.assert_array_equal(load_image(palette, mode="rgb").array, flat)
    cmyk = load_image(encoded(Image.fromarray(flat).convert("CMYK"), "TIFF"), mode="rgb").array
    np.testing.assert_allclose(cmyk.astype(int), flat, atol=1)
    bits = np.eye(8, dtype=bool)
    for source in (bits, encoded(Image.fromarray(bits))):
        np.testing.assert_array_equal(load_image(source).array, 255 * np.eye(8, dtype=np.uint8))


def test_sixteen_bits_keep_their_precision():
    levels = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    for source in (levels, levels[..., None], encoded(Image.fromarray(levels)), Image.fromarray(levels)):
        loaded = load_image(source)
        assert loaded.array.dtype == np.float32
        np.testing.assert_allclose(loaded.array, levels / 257, rtol=1e-6)
    colour = load_image(np.stack([levels] * 3, axis=2), mode="rgb").array
    np.testing.assert_allclose(colour[..., 2], levels / 257, rtol=1e-6)


def test_floats_in_0_1_become_0_255():
    values = np.linspace(0, 1, 64).reshape(8, 8)
    np.testing.assert_allclose(load_image(values).array, values * 255, rtol=1e-6)
    colour = np.stack([values, values / 2, values * 0], axis=2)
    grey = (19595 * colour[..., 0] + 38470 * colour[..., 1]) / 65536 * 255
    np.testing.assert_allclose(load_image(colour.astype(np.float32)).array, grey, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(load_image(values, mode="rgb").array, np.stack([values * 255] * 3, 2), rtol=1e-6)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_large_pictures_are_scaled_down_and_the_scale_recorded(kind):
    y, x = np.mgrid[:600, :900]
    smooth = (127 + 60 * np.sin(x / 90) + 60 * np.cos(y / 70)).astype(np.uint8)
    loaded = load_image(encoded(Image.fromarray(smooth), kind), max_side=225)
    assert loaded.array.shape == (150, 225)
    assert (loaded.original_size, loaded.scale) == ((900, 600), 0.25)
    area = smooth.reshape(150, 4, 225, 4).mean(axis=(1, 3))
    np.testing.assert_allclose(loaded.array, area, atol=3)
    assert load_image(encoded(Image.fromarray(smooth), kind), max_side=None).array.shape == (600, 900)


def test_float_pictures_scale_without_leaving_the_range():
    steps = np.zeros((40, 80))
    steps[:, 40:] = 1
    array = load_image(steps, max_side=30).array
    assert array.shape == (15, 30)
    assert (array.min(), array.max()) == (0.0, 255.0)


def test_a_pillow_image_is_left_as_it_was(rgb):
    picture = Image.open(io.BytesIO(encoded(Image.fromarray(np.tile(rgb, (10, 10, 1))), "JPEG")))
    load_image(picture, max_side=40)
    assert picture.size == (300, 200)


def png_header(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [13_000, 60_000])
def test_a_bomb_is_refused_from_its_header(side, tmp_path):
    (tmp_path / "bomb.png").write_bytes(png_header(side, side))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ImageError, match=r"bomb\.png.*(pixels|limit)"):
            load_image(tmp_path / "bomb.png")


def test_max_pixels_holds_for_arrays_and_pillow_images(rgb):
    for source in (rgb, Image.fromarray(rgb), encoded(Image.fromarray(rgb))):
        with pytest.raises(ImageError, match="30×20, 600 pixels, over the limit of 500"):
            load_image(source, max_pixels=500)


@pytest.fixture
def broken(tmp_path, rgb):
    picture = Image.fromarray(np.tile(rgb, (5, 5, 1)))
    for kind in ("jpg", "png", "gif", "tif", "bmp", "webp"):
        picture.save(tmp_path / f"whole.{kind}")
        whole = (tmp_path / f"whole.{kind}").read_bytes()
        (tmp_path / f"cut.{kind}").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.jpg").write_text("dear camera, please find attached")
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "folder.jpg").mkdir()
    Image.fromarray(rgb[:3, :3]).save(tmp_path / "tiny.png")
    Image.fromarray(np.zeros((5, 3000), np.uint8)).save(tmp_path / "narrow.png")
    os.mkfifo(tmp_path / "pipe.jpg")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *[(f"cut.{kind}", "damaged or cut off|not an image") for kind in ("jpg", "png", "gif", "tif", "bmp", "webp")],
        ("text.jpg", "not an image .*dear camera"),
        ("empty.jpg", "empty"),
        ("folder.jpg", "folder"),
        ("missing.jpg", "no such file"),
        ("tiny.png", "3×3 pixels"),
        ("narrow.png", "narrow"),
        ("pipe.jpg", "not a regular file"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(broken, name, message):
    with pytest.raises(ImageError, match=f"{name}.*({message})"):
        load_image(broken / name)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.full((8, 8), np.nan), "NaN"),
        (np.full((8, 8), 2.0), r"0\.\.1"),
        (np.full((8, 8), -0.1), r"0\.\.1"),
        (np.zeros((8, 8), np.int64), "uint8"),
        (np.zeros((8, 8, 2), np.uint8), r"shape \(8, 8, 2\)"),
        (np.zeros(8, np.uint8), r"shape \(8,\)"),
        (np.zeros((3, 3), np.uint8), "3×3"),
        (np.zeros((0, 8), np.uint8), "8×0"),
        (b"", "no bytes"),
        (b"not a picture", "not an image"),
        ("null\0character", "cannot be opened"),
        (None, "NoneType"),
        ({"a": 1}, "dict"),
    ],
)
def test_an_unusable_object_is_an_error_that_says_why(source, message):
    with pytest.raises(ImageError, match=message):
        load_image(source)


def test_bytes_with_random_damage_never_escape_as_another_error(rgb):
    rng = np.random.default_rng(0)
    for kind in ("JPEG", "PNG", "GIF", "TIFF", "WEBP"):
        data = np.frombuffer(encoded(Image.fromarray(rgb), kind), np.uint8)
        for _ in range(40):
            damaged = data.copy()
            damaged[rng.integers(0, len(data), 4)] = rng.integers(0, 256, 4)
            try:
                array = load_image(damaged.tobytes(), max_pixels=10_000).array
            except ImageError:
                continue
            assert array.ndim == 2


def test_damage_that_a_decoder_cannot_see_is_no_error(rgb):
    whole = bytearray(encoded(Image.fromarray(np.tile(rgb, (5, 5, 1))), "JPEG"))
    clean = load_image(bytes(whole)).array
    middle = len(whole) // 2
    whole[middle : middle + 8] = b"\x55" * 8
    spoilt = load_image(bytes(whole)).array
    assert spoilt.shape == clean.shape and not np.array_equal(spoilt, clean)
    assert np.array_equal(spoilt[:8], clean[:8])


def test_loading_in_threads_leaves_the_warning_filters_alone(rgb):
    before = list(warnings.filters)
    data = [encoded(Image.fromarray(rgb), kind) for kind in ("PNG", "JPEG")] * 100
    with ThreadPoolExecutor(4) as pool:
        shapes = set(pool.map(lambda source: load_image(source).array.shape, data))
    assert shapes == {(20, 30)}
    assert warnings.filters == before


@pytest.mark.parametrize("options", [{"mode": "hsv"}, {"max_side": 0}, {"max_pixels": -1}])
def test_bad_options_are_named(options, rgb):
    with pytest.raises(ValueError, match=next(iter(options))):
        load_image(rgb, **options)


def test_images_that_use_a_part_of_their_16_bits_keep_their_contrast():
    levels = np.linspace(0, 255, 64 * 64).reshape(64, 64)
    plain = load_image(levels.astype(np.uint8)).array.astype(float)
    for wide in (levels / 2 + 100, levels * 16, levels + 1000):
        found = load_image(wide.astype(np.uint16)).array
        assert np.abs(found - plain).mean() < 3
    full = (levels * 257).astype(np.uint16)
    np.testing.assert_allclose(load_image(full).array, full / 257, rtol=1e-6)
    dark = load_image(np.random.default_rng(0).integers(0, 3, (32, 32)).astype(np.uint16)).array
    assert dark.max() < 64  # the noise of a black image is not blown up


def test_postscript_is_not_handed_to_an_interpreter(tmp_path):
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n")
    with pytest.raises(ImageError, match="not an image in a format that can be read"):
        load_image(tmp_path / "x.png")


def test_what_decoding_would_take_is_bounded_unless_a_person_raises_it(monkeypatch):
    from patchbag.images import loading as images
    from patchbag.runtime import runtime_context

    picture = encoded(Image.new("RGB", (40, 30)))
    monkeypatch.setattr(images, "MAX_BYTES", 1000)
    with pytest.raises(ImageError, match=r"GB to decode, over the limit .* --max-pixels"):
        load_image(picture)
    with runtime_context(max_pixels=10_000):
        assert load_image(picture).array.shape == (30, 40)
    with runtime_context(max_pixels=100), pytest.raises(ImageError, match="over the limit of 100"):
        load_image(picture)


def test_a_large_picture_is_decoded_in_another_process_to_the_same_levels(monkeypatch, tmp_path):
    from patchbag.images import decoding
    from patchbag.images import loading as images

    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (70, 90, 4), dtype=np.uint8)).save(tmp_path / "x.png")
    wide = encoded(Image.fromarray(rng.integers(0, 9000, (70, 90)).astype(np.uint16)))
    sources = [tmp_path / "x.png", wide]
    here = [load_image(source, mode="rgb", max_side=64) for source in sources]
    monkeypatch.setattr(images, "LARGE", 100)
    monkeypatch.setattr(decoding, "_idle", {})
    there = [load_image(source, mode="rgb", max_side=64) for source in sources]
    (helper,) = decoding.processes()  # one for both
    for one, other in zip(here, there):
        assert np.array_equal(one.array, other.array) and one.array.dtype == other.array.dtype
        assert (one.original_size, one.scale, one.name) == (other.original_size, other.scale, other.name)
    with pytest.raises(ImageError, match="damaged or cut off"):
        load_image(wide[:200])
    os.kill(helper, signal.SIGKILL)
    time.sleep(0.2)
    assert load_image(wide, mode="rgb", max_side=64).array.shape == (50, 64, 3)
    decoding._end_helpers()


def test_a_file_of_thousands_of_scans_is_stopped(monkeypatch):
    from patchbag.images import decoding

    picture = encoded(Image.new("L", (2000, 2000), 90), "JPEG", progressive=True)
    monkeypatch.setattr(decoding, "SECONDS", 1)
    monkeypatch.setattr(decoding, "_idle", {})
    bomb = picture[:-2] + picture[picture.rindex(b"\xff\xda") : -2] * 3000 + picture[-2:]
    with pytest.raises(ImageError, match="takes more than 1 seconds to decode"):
        load_image(bomb)


def test_workers_wait_until_their_bytes_are_left():
    from patchbag.images.decoders import MAX_BYTES, in_turn

    def meet(*sizes):
        """Whether workers that take so many bytes are at work at the same time."""
        everybody, met = threading.Barrier(len(sizes)), []

        def decode(size):
            with in_turn(size):
                met.append(everybody.wait(timeout=30))

        threads = [threading.Thread(target=decode, args=(size,)) for size in sizes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(met) == len(sizes)

    most = MAX_BYTES
    assert meet(most // 3, most // 3)
    assert meet(5 * most, 100)  # no more than there is; small ones need not wait
    entered = threading.Event()

    def wait_for_half():
        with in_turn(most // 2):
            entered.set()

    with in_turn(most):
        waiting = threading.Thread(target=wait_for_half)
        waiting.start()
        assert not entered.wait(timeout=0.2)
    waiting.join(timeout=30)
    assert entered.is_set()


def test_pages_and_channels_of_a_file_can_be_chosen(tmp_path):
    from patchbag.runtime import runtime_context

    tifffile = pytest.importorskip("tifffile")
    pages = [Image.fromarray(np.full((8, 9), level, np.uint8)) for level in (10, 20, 30)]
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    assert load_image(tmp_path / "pages.tif").array.max() == 10
    assert load_image(tmp_path / "pages.tif", frame=2).array.max() == 30
    with runtime_context(frame=1):
        assert load_image(tmp_path / "pages.tif").array.max() == 20
    with pytest.raises(ImageError, match=r"no page 3 \(counted from 0\); it has 3 pages, the last is 2"):
        load_image(tmp_path / "pages.tif", frame=3)
    five = np.arange(5, dtype=np.uint16)[:, None, None] * 10_000 + np.zeros((8, 9), np.uint16)
    tifffile.imwrite(tmp_path / "five.tif", five, photometric="minisblack", planarconfig="separate")
    tifffile.imwrite(tmp_path / "other.tif", np.moveaxis(five, 0, 2), photometric="minisblack", planarconfig="contig")
    with pytest.raises(ImageError, match="more than four channels, choose one or three by --channels"):
        load_image(tmp_path / "five.tif")
    for name in ("five.tif", "other.tif"):
        assert load_image(tmp_path / name, channels=[4]).array == pytest.approx(40_000 / 257)
        colours = load_image(tmp_path / name, channels=[4, 0, 2], mode="rgb").array
        assert colours[3, 3] == pytest.approx([40_000 / 257, 0, 20_000 / 257])
        with pytest.raises(ImageError, match="no channel 5"):
            load_image(tmp_path / name, channels=[5])
    red = Image.new("RGB", (9, 9), (200, 100, 50))
    assert load_image(encoded(red), channels=[2]).array.max() == 50
    assert load_image(red, channels=[2, 1, 0], mode="rgb").array[0, 0].tolist() == [50, 100, 200]
    assert load_image(np.asarray(red), channels=[1]).array.max() == 100


@pytest.mark.parametrize("name", ["sift", "color", "gb", "deep", "deep-pooled", "gist", "lbp", "smp"])
def test_features_of_another_page_are_other_features(name):
    from patchbag.runtime import runtime_context
    from patchbag.stages import FEATURES

    known = FEATURES[name]().signature()
    with runtime_context(frame=1):
        assert FEATURES[name]().signature() != known
    with runtime_context(channels=[0]):
        assert FEATURES[name]().signature() != known


def test_files_of_telephones_and_cameras_say_what_they_need(tmp_path):
    pytest.importorskip("patchbag")
    (tmp_path / "x.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    (tmp_path / "x.nef").write_bytes(b"II*\0" + bytes(40))
    with pytest.raises(ImageError, match=r"pip install patchbag\[heic\]|damaged"):
        load_image(tmp_path / "x.heic")
    with pytest.raises(ImageError, match=r"pip install patchbag\[raw\]|damaged"):
        load_image(tmp_path / "x.nef")


def test_a_photograph_of_a_telephone_is_read():
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    picture = Image.fromarray(np.tile(np.arange(0, 240, 4, dtype=np.uint8)[:, None], (1, 80)))
    loaded = load_image(encoded(picture.convert("RGB"), "HEIF", quality=95))
    assert np.abs(loaded.array.astype(int) - np.asarray(picture)).max() < 8


def test_a_raw_file_of_a_camera_is_developed(tmp_path):
    pytest.importorskip("rawpy")
    tifffile = pytest.importorskip("tifffile")
    levels = np.tile(np.linspace(0, 60_000, 96).astype(np.uint16), (64, 1))
    tags = [
        (33421, "H", 2, (2, 2), True),  # a pattern of 2×2 cells: red, green, green, blue
        (33422, "B", 4, bytes([0, 1, 1, 2]), True),
        (50706, "B", 4, bytes([1, 4, 0, 0]), True),
        (50708, "s", 0, "patchbag", True),
        (50721, "2i", 9, (1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1), True),
    ]
    path = tmp_path / "x.dng"
    tifffile.imwrite(path, levels, photometric="cfa", extratags=tags)
    loaded = load_image(path, max_side=None)
    assert loaded.original_size == (96, 64) and loaded.array.shape == (64, 96)
    assert loaded.array[32, 90] > loaded.array[32, 48] > loaded.array[32, 5]
    with pytest.raises(ImageError, match="over the limit of 100"):
        load_image(path, max_pixels=100)


def test_a_large_picture_is_reduced_before_it_is_copied_and_stays_upright():
    tall = Image.fromarray(np.tile(np.linspace(0, 255, 900).astype(np.uint8), (300, 1)))
    exif = Image.Exif()
    exif[274] = 6
    file = io.BytesIO()
    tall.save(file, "PNG", exif=exif)
    found = load_image(file.getvalue(), max_side=60)
    assert found.original_size == (300, 900) and found.array.shape == (60, 20)
    assert found.array[0].mean() < 10 and found.array[-1].mean() > 245
