"""User code: importable folders that a user names or builds into an image, and that no model package contains.

A reference such as `my_model:Network` names an object in such a folder. Other folders are never searched.
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
# Folders of user code imported so far. `describe_failure` reports the innermost line of a traceback in one of them.
_IMPORTED_FOLDERS: Final[set[Path]] = set()
# Another thread must not see a module whose import is not complete.
_IMPORT_LOCK: Final = threading.RLock()


class Code:
    """Folders of user code by name. A folder is imported when an object of it is needed."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = dict(folders)
        self._used: set[str] = set()

    @classmethod
    def from_folders(cls, folders: Iterable[Path]) -> Code:
        """Collect the code in folders, such as the folders of `--code`.

        Raises:
            HecktorError: A folder does not exist, has no `__init__.py`, or has a name that Python cannot import or that
                another module has.
        """
        path_of: dict[str, Path] = {}
        for folder in folders:
            path = folder.resolve()
            _check_folder(path, path_of)
            path_of[path.name] = path
        return cls(path_of)

    def __bool__(self) -> bool:
        return bool(self.folders)

    def find(self, reference: str, kind: str) -> Any:
        """Find the object that a reference names.

        Args:
            reference: Folder and name, such as `my_model:Network`.
            kind: Kind of the object in messages, such as "network".

        Raises:
            ModelPackageError: The folder is not available, its import fails, or it has no such object.
        """
        name, attribute = split_reference(reference, kind)
        if name not in self.folders:
            known = f" (found {', '.join(sorted(self.folders))})" if self.folders else ""
            expected = f"--code {name}, or an image built with it{known}"
            raise ModelPackageError(f"{kind} {reference}", f"no code {name}", expected)
        module = _import_folder(name, self.folders[name])
        self._used.add(name)
        try:
            return getattr(module, attribute)
        except AttributeError:
            raise ModelPackageError(
                f"{kind} {reference}", f"{name} has no {attribute}", "a class of this name"
            ) from None

    def find_classes(self, attribute: str) -> tuple[str, ...]:
        """Return a reference to `attribute` for each folder that has it.

        Raises:
            ModelPackageError: The import of a folder fails.
        """
        names = [name for name, folder in self.folders.items() if hasattr(_import_folder(name, folder), attribute)]
        self.use(names)
        return tuple(f"{name}{_SEPARATOR}{attribute}" for name in names)

    def use(self, names: Iterable[str]) -> None:
        """Mark these folders as used without importing them."""
        self._used.update(names)

    def digest(self, name: str) -> str:
        """Compute the sha256 of the names and contents of all files that `list_code_files` lists for a folder."""
        folder = self.folders[name]
        total = hashlib.sha256()
        for path in list_code_files(folder):
            content = path.read_bytes()
            total.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
            total.update(content)
        return total.hexdigest()

    def check_used(self) -> None:
        """Check that every folder was used; raise `HecktorError` otherwise."""
        unused = sorted(self.folders.keys() - self._used)
        if unused:
            expected = "code that the model package names: leave it out if its head had no skill"
            raise HecktorError("--code", f"found {unused[0]}, which nothing uses", expected)


def list_code_files(folder: Path) -> list[Path]:
    """List all files in a folder of code, sorted, without byte code and hidden files."""
    return sorted(path for path in find_files(folder) if not _is_ignored(path.relative_to(folder).parts))


def _is_ignored(parts: tuple[str, ...]) -> bool:
    return parts[-1].endswith(".pyc") or any(part == "__pycache__" or platform.is_system_name(part) for part in parts)


def find_installed_code(folder: Path = platform.CODE_DIR) -> Code:
    """Collect the code that was built into this image: every subfolder of `folder`, by default `/opt/code`."""
    return (
        Code.from_folders(sorted(path for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else Code({})
    )


def resolve_code(folders: Iterable[Path] | None) -> Code:
    """Collect the code of `--code`, or without the option the code of the image; raise `HecktorError` if unusable."""
    return Code.from_folders(folders) if folders else find_installed_code()


def split_reference(reference: str, kind: str) -> tuple[str, str]:
    """Split `folder:Name` into folder and name; raise `ModelPackageError` for any other text."""
    name, separator, attribute = reference.partition(_SEPARATOR)
    if not (separator and name.isidentifier() and attribute.isidentifier()):
        expected = "folder:Name, such as my_model:Network"
        raise ModelPackageError(f"{kind} {reference!r}", "not a reference to code", expected)
    return name, attribute


def _check_folder(path: Path, checked: Mapping[str, Path]) -> None:
    """Check that a folder can be imported; `checked` contains the folders that were checked before it, by name."""
    if not path.is_dir():
        raise HecktorError(f"--code {path.name}", "found no such folder", "a folder of Python code")
    if not (path / "__init__.py").is_file():
        raise HecktorError(f"--code {path.name}", "no __init__.py", "an importable folder of Python code")
    if not path.name.isidentifier():
        raise HecktorError(f"--code {path.name}", "found a name that Python cannot import", "such as my_model")
    if checked.get(path.name, path) != path:
        raise HecktorError(f"--code {path.name}", "found two folders of this name", "one")
    # Python finds the folder itself if it was imported before or is in the working directory.
    spec = sys.modules[path.name].__spec__ if path.name in sys.modules else importlib.util.find_spec(path.name)
    if spec is not None and (spec.origin is None or Path(spec.origin).resolve() != path / "__init__.py"):
        raise HecktorError(f"--code {path.name}", "found another module of this name", "another name")


def _import_folder(name: str, folder: Path) -> ModuleType:
    """Import a folder under its name. Folders next to it do not become importable."""
    with _IMPORT_LOCK:
        module = sys.modules.get(name)
        return _execute_module(name, folder) if module is None else module


def _execute_module(name: str, folder: Path) -> ModuleType:
    source = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, source, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ModelPackageError(f"code {name}", "cannot be imported", "Python code")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _IMPORTED_FOLDERS.add(folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        for loaded in list(sys.modules):
            if loaded == name or loaded.startswith(f"{name}."):
                del sys.modules[loaded]
        failure = f"its import fails: {describe_failure(problem)}"
        raise ModelPackageError(f"code {name}", failure, "importable code") from problem
    return module


def is_memory_error(problem: BaseException) -> bool:
    """Return whether an exception reports that memory ran out."""
    return isinstance(problem, MemoryError)


def call_code(
    what: str,
    expected: str,
    function: Callable[..., Any],
    *values: Any,
    should_propagate: Callable[[BaseException], bool] = is_memory_error,
) -> Any:
    """Call a function of user code.

    Args:
        what: Name of the function in messages.
        expected: Expectation in messages.
        function: The function.
        values: Arguments of the function.
        should_propagate: Tells which exceptions are raised as they are, by default memory errors.

    Raises:
        ModelPackageError: The function fails; the message describes the failure in one line.
        Exception: A failure for which `should_propagate` is true.
    """
    try:
        return function(*values)
    except (Exception, SystemExit) as problem:
        if should_propagate(problem):
            raise
        raise ModelPackageError(what, describe_failure(problem), expected) from problem


def describe_failure(problem: BaseException) -> str:
    """Describe an exception of user code in one line: its type, its message, file and line.

    The line is the innermost line in the user's folders, not a line of a library that the code calls.
    """
    message = " ".join(str(problem).split())
    failure = f"{type(problem).__name__}: {message}" if message else type(problem).__name__
    # The message of a SyntaxError names file and line.
    frames = [] if isinstance(problem, SyntaxError) else list(traceback.extract_tb(problem.__traceback__))
    own = [frame for frame in frames if _is_user_code(Path(frame.filename))]
    innermost = (own or frames)[-1:]
    return failure + "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in innermost)


def _is_user_code(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _IMPORTED_FOLDERS)
