"""The structure of the product: no import circle, folders that need no map, each class name once.

The layers inside evaluation, reporting and baseline, and who may import whom, are import-linter's contracts in pyproject.toml.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "contract",
    "algorithm",
    "evaluation",
    "reporting",
    "baseline",
    "rehearsal",
    "convert",
    "hecktor",
    "benchmarks",
)
MOST_MODULES = 14
_Graph = Mapping[str, set[str]]


def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name; a package goes by the name of its folder."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """The source of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(module: ast.Module, known: frozenset[str]) -> Iterator[str]:
    """The modules among `known` that a module imports, wherever in it the import stands.

    `from package import name` is an import of `package.name` where that is a module.
    """
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module


def circle(graph: _Graph) -> list[str]:
    """One import circle as a list of modules that ends where it begins; empty where there is none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph.get(name, ())):
            if found := visit(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])


def prefixes(names: list[str]) -> list[str]:
    """The first words that several module names of one folder share, such as `card` of `card_data` and `card_page`."""
    words = Counter(name.split("_")[0] for name in names)
    return sorted(word for word, count in words.items() if count > 1)


def test_circle_finds_a_planted_circle() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_prefixes_finds_a_planted_prefix() -> None:
    assert prefixes(["card", "card_data", "plans", "models_cox", "models_signs"]) == ["card", "models"]


def test_no_module_imports_itself_through_others() -> None:
    known = modules()
    names = frozenset(known)
    graph = {name: set(imports(parsed(path), names)) & names - {name} for name, path in known.items()}
    # A package's __init__ names what others may use; its own modules do not import it.
    assert circle(graph) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_need_no_map(package: str) -> None:
    folders = defaultdict(list)
    for path in (ROOT / package).rglob("*.py"):
        if not path.stem.startswith("__"):
            folders[path.parent.relative_to(ROOT)].append(path.stem)
    assert {str(folder): len(names) for folder, names in folders.items() if len(names) > MOST_MODULES} == {}
    assert {str(folder): shared for folder, names in folders.items() if (shared := prefixes(names))} == {}


def test_each_public_class_name_stands_once() -> None:
    places = defaultdict(list)
    for name, path in modules().items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_one_module_of_the_algorithm_imports_nnunet() -> None:
    """What a new version of nnU-Net changes for an image is found there."""
    foreign = frozenset({"nnunetv2", "dynamic_network_architectures", "batchgenerators", "batchgeneratorsv2"})
    users = {
        name
        for name, path in modules().items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        )
        if module.partition(".")[0] in foreign
    }
    assert {name for name in users if not name.startswith("baseline.")} == {"algorithm.network.nnunet"}
