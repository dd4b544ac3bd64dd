"""Structure of the product: no import circle, small folders, unique class names.

The layers inside evaluation, reporting and baseline, and who may import whom, are import-linter's contracts in
pyproject.toml.
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


def list_modules() -> dict[str, Path]:
    """Return every module of the product by its dotted name; a package has the name of its folder."""
    paths = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def find_imports(module: ast.Module, known: frozenset[str]) -> Iterator[str]:
    """Yield the modules among `known` that a module imports anywhere.

    `from package import name` is an import of `package.name` if that is a module.
    """
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module


def find_circle(graph: _Graph) -> list[str]:
    """Return one import circle as a list of modules that ends where it begins; empty if there is no circle."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for imported in sorted(graph.get(name, ())):
            if cycle := visit(imported, [*path, name]):
                return cycle
        done.add(name)
        return []

    return next((cycle for name in sorted(graph) if (cycle := visit(name, []))), [])


def find_prefixes(names: list[str]) -> list[str]:
    """Return the first words that several module names of one folder share, such as `card` of `card_data` and
    `card_page`.
    """
    words = Counter(name.split("_")[0] for name in names)
    return sorted(word for word, count in words.items() if count > 1)


def test_circle_finds_a_planted_circle() -> None:
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert find_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_prefixes_finds_a_planted_prefix() -> None:
    assert find_prefixes(["card", "card_data", "plans", "models_cox", "models_signs"]) == ["card", "models"]


def test_no_module_imports_itself_through_others() -> None:
    known = list_modules()
    names = frozenset(known)
    graph = {name: set(find_imports(parse_module(path), names)) & names - {name} for name, path in known.items()}
    # A package's __init__ names what others may use; its own modules do not import it.
    assert find_circle(graph) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_need_no_map(package: str) -> None:
    folders = defaultdict(list)
    for path in (ROOT / package).rglob("*.py"):
        if not path.stem.startswith("__"):
            folders[path.parent.relative_to(ROOT)].append(path.stem)
    assert {str(folder): len(names) for folder, names in folders.items() if len(names) > MOST_MODULES} == {}
    assert {str(folder): shared for folder, names in folders.items() if (shared := find_prefixes(names))} == {}


def test_public_class_names_are_unique() -> None:
    places = defaultdict(list)
    for name, path in list_modules().items():
        for node in ast.walk(parse_module(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_one_module_of_the_algorithm_imports_nnunet() -> None:
    """Changes in a new version of nnU-Net then concern only this module."""
    foreign = frozenset({"nnunetv2", "dynamic_network_architectures", "batchgenerators", "batchgeneratorsv2"})
    users = {
        name
        for name, path in list_modules().items()
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        )
        if module.partition(".")[0] in foreign
    }
    assert {name for name in users if not name.startswith("baseline.")} == {"algorithm.network.nnunet"}
