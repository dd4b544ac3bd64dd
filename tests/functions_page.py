"""Generate the page docs/functions.md from the docstrings of the public functions and classes.

`python -m tests.functions_page` writes the page; `tests/test_docs.py` checks that it is current.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "functions.md"
# Packages and modules in the order of the page, with their public names where they have no `__all__`.
MODULES = {
    "algorithm": (),
    "evaluation": (),
    "baseline": (),
    "rehearsal": (),
    "convert": (),
    "contract.errors": ("HecktorError",),
    "contract.images.volumes": ("read_volume", "write_volume", "write_mask", "find_single_image"),
}
HEAD = """# Functions

The signature and the first sentence of each public function and class, and of the methods that
[Use it from Python](research.md#use-it-from-python) shows. `help(NAME)` prints the whole docstring. [What is
stable](research.md#what-is-stable) lists the stable names.

This page is generated from the docstrings: after a change run `python -m tests.functions_page`.
"""
MAX_SIGNATURE = 100


def list_public_names(module: str) -> list[str]:
    """Return the public names of a module."""
    return list(MODULES[module] or import_module(module).__all__)


def resolve_aliases(annotation: str, module: str) -> str:
    """Replace the names of type aliases, which a reader of the page cannot look up, by the types."""
    source = inspect.getsource(import_module(module))
    for name in re.findall(r"\b_?[A-Z]\w*\b", annotation):
        if alias := re.search(rf"^{name}(?:: TypeAlias)? = (.+)$", source, re.MULTILINE):
            annotation = re.sub(rf"\b{name}\b", alias[1], annotation)
    return annotation


def format_default(value: Any) -> str:
    """Return the text of a default; `...` for an object or a mapping."""
    if inspect.isclass(value):
        return value.__name__
    if value is None or isinstance(value, (int, float, str, tuple)):
        return repr(value).replace("'", '"')
    return "..."


def format_parameter(parameter: inspect.Parameter, module: str) -> str:
    """Return a parameter with its annotation and default."""
    name = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + parameter.name
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation).replace("typing.", "")
    if annotation is not parameter.empty:
        name += f": {resolve_aliases(text, module)}"
    return name if parameter.default is parameter.empty else f"{name} = {format_default(parameter.default)}"


def format_signature(title: str, function: Callable[..., Any]) -> str:
    """Return a signature on one line, or with one parameter a line if it is long."""
    signature = inspect.signature(function)
    parts, is_keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only and parts:
            parts.append("*")
        is_keyword_only |= parameter.kind is parameter.KEYWORD_ONLY
        parts.append(format_parameter(parameter, function.__module__))
    result = signature.return_annotation
    end = "" if inspect.isclass(function) or result is signature.empty else f" -> {result}"
    line = f"{title}({', '.join(parts)}){end}"
    if len(line) <= MAX_SIGNATURE:
        return line
    lines = [f"{title}(", *(f"    {part}," for part in parts), f"){end}"]
    return "\n".join(lines)


def find_first_sentence(item: object) -> str:
    """Return the first sentence of a docstring."""
    lines = (inspect.getdoc(item) or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=[a-z`)\]]\.)\s", lines, maxsplit=1)[0]


def is_result(item: object) -> bool:
    """Return whether an item is a class of documents that functions return, so that users need not type its fields.

    pydantic finds the signature of a class of documents when it is first used, or here.
    """
    if not (inspect.isclass(item) and issubclass(item, BaseModel)):
        return False
    item.model_rebuild()
    return any(field.is_required() for field in item.model_fields.values())


def format_item(title: str, item: Any) -> str:
    """Return the entry of a function, class, method or constant."""
    if not callable(item):
        return f"### `{title}`\n\nA dictionary of plans by name: {', '.join(f'`{key}`' for key in item)}.\n"
    signature = title if is_result(item) else format_signature(title, item)
    return f"### `{title}`\n\n```python\n{signature}\n```\n\n{textwrap.fill(find_first_sentence(item), 120)}\n"


def find_shown_methods(item: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the methods of a class that docs/research.md uses, with their titles."""
    research = (ROOT / "docs" / "research.md").read_text(encoding="utf-8")
    for name, method in vars(item).items():
        if not name.startswith("_") and inspect.isfunction(method) and f".{name}(" in research:
            yield f"{item.__name__}.{name}", method


def build_page() -> str:
    """Return the text of docs/functions.md."""
    parts = [HEAD]
    for module in MODULES:
        parts.append(f"## {module}\n\n{find_first_sentence(import_module(module))}\n")
        for name in list_public_names(module):
            item = getattr(import_module(module), name)
            parts.append(format_item(name, item))
            if inspect.isclass(item):
                parts += [format_item(title, method) for title, method in find_shown_methods(item)]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
