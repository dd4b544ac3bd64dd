"""An edition as one JSON document, the declaration with its evaluation profile inside.

Needs the standard library alone: `python3 contract/editions/whole.py FILE` prints it for `scripts/build`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

SHIPPED: Final = Path(__file__).parent
DEFAULT_EDITION: Final = "hecktor2025"
PROFILE: Final = "evaluation_profile"
DECLARATION: Final = "declaration"
# Used by editors only.
SCHEMA: Final = "$schema"


def whole_edition(path: Path, read: Callable[[Path], Any]) -> tuple[Any, str]:
    """The content of a declaration with its profile, or of a profile with its declaration; and the profile's file name.

    The profile stays a name if it is one of the package. `read` gives a file's content.

    Raises:
        ValueError: the profile is that of another declaration; the message names both.
    """
    content = read(path)
    if not isinstance(content, dict):
        return content, path.name
    if "tasks" in content:
        stated = content.get(DECLARATION, DEFAULT_EDITION)
        return _joined(read(_declared(path.parent, stated)), content), path.name
    profile = content.get(PROFILE)
    if not isinstance(profile, str) or not profile.endswith(".json"):
        return _joined(content, profile), f"{path.name}.{PROFILE}"
    file = path.parent / profile
    inside = read(file)
    stated = inside.get(DECLARATION) if isinstance(inside, dict) else None
    if isinstance(stated, str) and _declared(file.parent, stated).resolve() != path.resolve():
        raise ValueError(f"{file.name}.{DECLARATION}: found {stated!r}, expected {path.name}, which names this profile")
    return _joined(content, inside), file.name


def _declared(folder: Path, name: object) -> Path:
    shipped = SHIPPED / f"{name}.json"
    return shipped if shipped.is_file() else folder / str(name)


def _joined(declaration: Any, profile: Any) -> Any:
    if not isinstance(declaration, dict):
        return declaration
    if isinstance(profile, dict):
        profile = {key: value for key, value in profile.items() if key not in (DECLARATION, SCHEMA)}
    declared = {key: value for key, value in declaration.items() if key != SCHEMA}
    return declared if profile is None else declared | {PROFILE: profile}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        sys.exit(f"error: {path.name}: {problem.strerror}, expected the JSON file of an edition")
    except ValueError as problem:
        sys.exit(f"error: {path.name}: {problem}")


if __name__ == "__main__":
    try:
        whole, _ = whole_edition(Path(sys.argv[1]), _read)
    except ValueError as problem:
        sys.exit(f"error: {problem}")
    sys.stdout.write(json.dumps(whole, ensure_ascii=False, indent=2) + "\n")
