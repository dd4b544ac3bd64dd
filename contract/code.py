"""Entrants' own code: importable folders that a user names or builds into an image, never part of a package.

A reference such as `my_model:Network` names an object in such a folder. Only folders that were given are looked in.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from contract import platform
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import find_files

_SEPARATOR: Final = ":"
# Entrants' folders that were imported; a failure is shown where it left their code.
_FOLDERS: Final[set[Path]] = set()
# Another thread must not see a module whose import is not complete.
_IMPORTING: Final = threading.RLock()


class Code:
    """Folders of code by their names; nothing is imported before an object is asked for."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = dict(folders)
        self._used: set[str] = set()

    @classmethod
    def from_folders(cls, folders: Iterable[Path]) -> Code:
        """The code in these folders, such as those of `--code`.

        Raises:
            HecktorError: no such folder, no `__init__.py` in it, or a name that Python can't import or has already.
        """
        found: dict[str, Path] = {}
        for folder in folders:
            path = folder.resolve()
            _check_folder(path, found)
            found[path.name] = path
        return cls(found)

    def __bool__(self) -> bool:
        return bool(self.folders)

    def find(self, reference: str, kind: str) -> Any:
        """The object that `reference` (`folder:Name`) names; `kind` says in an error what it is, such as a network.

        Raises:
            ModelPackageError: no such folder was given, its import fails, or it has no such object.
        """
        name, attribute = split_reference(reference, kind)
        if name not in self.folders:
            known = f" (found {', '.join(sorted(self.folders))})" if self.folders else ""
            expected = f"--code {name}, or an image built with it{known}"
            raise ModelPackageError(f"{kind} {reference}", f"no code {name}", expected)
        module = _import(name, self.folders[name])
        self._used.add(name)
        try:
            return getattr(module, attribute)
        except AttributeError:
            raise ModelPackageError(
                f"{kind} {reference}", f"{name} has no {attribute}", "a class of this name"
            ) from None

    def find_classes(self, attribute: str) -> tuple[str, ...]:
        """References to `attribute` in the folders that have it. Raises `ModelPackageError` if an import fails."""
        names = [name for name, folder in self.folders.items() if hasattr(_import(name, folder), attribute)]
        self.use(names)
        return tuple(f"{name}{_SEPARATOR}{attribute}" for name in names)

    def use(self, names: Iterable[str]) -> None:
        """Mark these folders as used without importing them."""
        self._used.update(names)

    def digest(self, name: str) -> str:
        """The sha256 of the names and contents of all files in a folder of code, but for byte code."""
        folder, total = self.folders[name], hashlib.sha256()
        for path in list_code_files(folder):
            content = path.read_bytes()
            total.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
            total.update(content)
        return total.hexdigest()

    def check_used(self) -> None:
        """Raise `HecktorError` for a given folder that nothing used."""
        unused = sorted(self.folders.keys() - self._used)
        if unused:
            raise HecktorError("--code", f"found {unused[0]}, which nothing uses", "code that the model package names")


def list_code_files(folder: Path) -> list[Path]:
    """All files in a folder of code, sorted, without byte code and hidden files."""
    paths = find_files(folder)
    return sorted(path for path in paths if not _is_left_out(path.relative_to(folder).parts))


def _is_left_out(parts: tuple[str, ...]) -> bool:
    return parts[-1].endswith(".pyc") or any(part == "__pycache__" or platform.is_system_name(part) for part in parts)


def find_installed_code(folder: Path = platform.CODE_DIR) -> Code:
    """The code that was built into this image: each folder in `/opt/code`; empty outside an image."""
    return (
        Code.from_folders(sorted(path for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else Code({})
    )


def resolve_code(folders: Iterable[Path] | None) -> Code:
    """The code of `--code`, else that of the image. Raises `HecktorError` for an unusable folder."""
    return Code.from_folders(folders) if folders else find_installed_code()


def split_reference(reference: str, kind: str) -> tuple[str, str]:
    """Folder and name of `folder:Name`. Raises `ModelPackageError` for anything else."""
    name, separator, attribute = reference.partition(_SEPARATOR)
    if not (separator and name.isidentifier() and attribute.isidentifier()):
        raise ModelPackageError(f"{kind} {reference!r}", "not a name of code", "folder:Name, such as my_model:Network")
    return name, attribute


def _check_folder(path: Path, others: Mapping[str, Path]) -> None:
    if not path.is_dir():
        raise HecktorError(f"--code {path.name}", "found no such folder", "a folder of Python code")
    if not (path / "__init__.py").is_file():
        raise HecktorError(f"--code {path.name}", "no __init__.py", "an importable folder of Python code")
    if not path.name.isidentifier():
        raise HecktorError(f"--code {path.name}", "found a name that Python cannot import", "such as my_model")
    if path.name in others and others[path.name] != path:
        raise HecktorError(f"--code {path.name}", "found two folders of this name", "one")
    # The folder itself is found if it was imported before, or lies in the user's working directory.
    spec = sys.modules[path.name].__spec__ if path.name in sys.modules else importlib.util.find_spec(path.name)
    if spec is not None and (spec.origin is None or Path(spec.origin).resolve() != path / "__init__.py"):
        raise HecktorError(f"--code {path.name}", "found another module of this name", "another name")


def _import(name: str, folder: Path) -> ModuleType:
    """Import the folder under its name, without a place on Python's path for its neighbours."""
    with _IMPORTING:
        loaded = sys.modules.get(name)
        return _executed(name, folder) if loaded is None else loaded


def _executed(name: str, folder: Path) -> ModuleType:
    source = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, source, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ModelPackageError(f"code {name}", "cannot be imported", "Python code")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _FOLDERS.add(folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        for one in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[one]
        raise ModelPackageError(
            f"code {name}", f"its import fails: {describe_failure(problem)}", "importable code"
        ) from problem
    return module


def _is_lack_of_memory(problem: BaseException) -> bool:
    return isinstance(problem, MemoryError)


def call_code(
    what: str,
    expected: str,
    function: Callable[..., Any],
    *values: Any,
    passes: Callable[[BaseException], bool] = _is_lack_of_memory,
) -> Any:
    """Call a function of an entrant's code; `what` names it in an error.

    Raises:
        ModelPackageError: it fails, with the failure in one line.
        Exception: a failure that `passes` accepts, as it is.
    """
    try:
        return function(*values)
    except (Exception, SystemExit) as problem:
        if passes(problem):
            raise
        raise ModelPackageError(what, describe_failure(problem), expected) from problem


def describe_failure(problem: BaseException) -> str:
    """An exception of an entrant's code in one line: its type, its message, file and line.

    The line is the innermost one in the entrant's own folder, not one of a library that it calls.
    """
    frames = [] if isinstance(problem, SyntaxError) else traceback.extract_tb(problem.__traceback__)  # it names its own
    own = [frame for frame in frames if any(Path(frame.filename).is_relative_to(folder) for folder in _FOLDERS)]
    where = "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in (own or frames)[-1:])
    message = " ".join(str(problem).split())
    return f"{type(problem).__name__}{': ' if message else ''}{message}{where}"
