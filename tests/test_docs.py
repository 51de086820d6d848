"""What the documentation names must exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from patchbag import experiments
from patchbag.cli import app
from patchbag.recipes import RECIPES

ROOT = Path(__file__).parents[1]
METHODS = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def references() -> list[tuple[str, str]]:
    return re.findall(r"`([\w/]+\.py)(?:: (\w+))?`", METHODS)


def test_every_function_and_test_of_the_methods_page_exists():
    assert len(references()) > 80
    for file, name in references():
        base = ROOT / ("tests" if re.search(r"(^|/)test_", file) else "src/patchbag")
        text = (base / file).read_text(encoding="utf-8")
        assert not name or re.search(rf"^\s*(def|class) {name}\b", text, re.MULTILINE), f"{file}: {name}"


def test_every_experiment_of_the_methods_page_exists():
    named = set(re.findall(r"`((?:liu|cinbis|kapoor|piro)\d+/\w+)`", METHODS))
    assert named and named <= set(experiments.list_experiments())


@pytest.mark.parametrize("command", ["demo", "train", "predict", "evaluate", "recipes", "cache", "reproduce", "active"])
def test_every_command_is_in_the_readme(command):
    assert command in get_command(app).commands
    assert f"patchbag {command}" in README or f"make {command}" in README


def test_every_recipe_is_in_the_readme():
    missing = [name for name in RECIPES if f"`{name}`" not in README]
    assert not missing


def test_the_pictures_of_the_readme_are_there():
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file()
