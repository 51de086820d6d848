"""The folder tree is the data flow: what comes later may use what comes earlier, never the other way round."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "patchbag"

# modules and folders in the order of the data flow; those on one line know nothing of each other's insides
ORDER = [
    ["runtime", "special", "protocol", "metrics", "parameters", "records"],
    ["storage"],
    ["images"],
    ["cluster", "device"],
    ["bags"],
    ["channels"],
    ["features"],
    ["mixture"],
    ["encodings"],
    ["similarity", "neighbors"],
    ["embeddings"],
    ["classifiers"],
    ["active"],
    ["explain"],
    ["collection"],
    ["datasets", "memory", "settings"],
    ["stages"],
    ["recipes"],
    ["search"],
    ["categorizer", "evaluation"],
    ["streaming"],
    ["report"],
    ["experiments", "demo"],
    ["page"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def modules() -> dict[str, Path]:
    """Module name below patchbag -> file."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


MODULES = modules()


def imports(path: Path) -> set[str]:
    """Modules of ours that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("patchbag."):
            base = node.module.removeprefix("patchbag.")
            inside = {f"{base}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= inside or {base}
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("patchbag.") for a in node.names if a.name.startswith("patchbag.")}
    return found


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_imports_only_what_comes_before_it(name):
    mine = LEVEL[name.split(".")[0]]
    later = {other for other in imports(MODULES[name]) if LEVEL[other.split(".")[0]] > mine}
    assert not later


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: imports(path) & MODULES.keys() for name, path in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_file_holds_one_idea(name):
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= 350


@pytest.mark.parametrize("name", [n for n in sorted(MODULES) if LEVEL[n.split(".")[0]] < LEVEL["cli"]])
def test_texts_of_the_library_name_no_commands(name):
    text = MODULES[name].read_text(encoding="utf-8")
    commands = (
        "train",
        "predict",
        "evaluate",
        "active",
        "recipes",
        "reproduce",
        "cache",
        "demo",
        "serve",
        "index",
        "search",
        "duplicates",
    )
    assert not [word for word in commands if f"'patchbag {word}" in text or f"``patchbag {word}" in text]
