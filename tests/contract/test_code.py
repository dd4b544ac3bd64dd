"""User code is found only in the given folders; every fault is one line."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.code import Code, find_installed_code, list_code_files, resolve_code
from contract.errors import HecktorError, ModelPackageError


def write_code(folder: Path, **files: str) -> Path:
    """Write a folder of code with these modules, `init` for `__init__`."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / ("__init__.py" if name == "init" else f"{name}.py")).write_text(content)
    return folder


@pytest.fixture(autouse=True)
def forget_modules() -> Iterator[None]:
    """Forget the modules that a test imports."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_object_of_a_folder_and_of_its_own_modules(tmp_path: Path) -> None:
    """Relative and absolute imports within the folder work; a neighbour of the folder cannot be imported."""
    write_code(tmp_path / "neighbour_of_it", init="")
    folder = write_code(
        tmp_path / "my_code",
        init="from my_code.inner import Network\nfrom .inner import VALUE\n",
        inner="VALUE = 3\nclass Network:\n    value = VALUE\n",
    )
    code = Code.from_folders([folder])
    assert "my_code" not in sys.modules  # nothing runs before it is asked for
    assert code.find("my_code:Network", "network").value == 3
    assert code.find("my_code:Network", "network") is Code.from_folders([folder]).find("my_code:Network", "network")
    code.check_used()
    with pytest.raises(ModuleNotFoundError):
        __import__("neighbour_of_it")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("other:Network", r"^network other:Network: no code other, .*found my_code"),
        ("my_code:Absent", r"^network my_code:Absent: my_code has no Absent"),
        ("../my_code:Network", r"^network '../my_code:Network': not a reference to code"),
        ("os:system", r"^network os:system: no code os"),
    ],
)
def test_an_absent_name(tmp_path: Path, reference: str, message: str) -> None:
    """Installed modules are not searched."""
    code = Code.from_folders([write_code(tmp_path / "my_code", init="Network = 1\n")])
    with pytest.raises(ModelPackageError, match=message):
        code.find(reference, "network")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import absent_module\n", r"ModuleNotFoundError: No module named 'absent_module' \(__init"),
        ("x = 1\nraise ValueError('two\\nlines')\n", r"ValueError: two lines \(__init__.py, line 2\)"),
        ("import json\n\n\ndef read():\n    json.loads('{')\n\n\nread()\n", r"JSONDecodeError: .*__init__.py, line 5"),
        ("def broken(:\n", r"SyntaxError: .*__init__.py, line 1"),
        ("import sys\n\nsys.exit(7)\n", r"SystemExit: 7 \(__init__.py, line 3\)"),
    ],
)
def test_code_whose_import_fails(tmp_path: Path, source: str, message: str) -> None:
    code = Code.from_folders([write_code(tmp_path / "broken_code", init=source)])
    with pytest.raises(ModelPackageError, match=f"^code broken_code: its import fails: {message}") as error:
        code.find("broken_code:Network", "network")
    assert "\n" not in str(error.value)
    assert "broken_code" not in sys.modules


def test_a_second_thread_waits_for_the_import(tmp_path: Path) -> None:
    """`sys.modules` holds the module from the start of its import, which is still running when the second thread asks for it.

    The import gives the second thread half a second to answer too early.
    """
    source = "import builtins\nbuiltins.begun.set()\nbuiltins.second_answered.wait(0.5)\nNetwork = 4\n"
    code = Code.from_folders([write_code(tmp_path / "slow_code", init=source)])
    begun, second_answered, answers = threading.Event(), threading.Event(), []

    def ask() -> None:
        answers.append(code.find("slow_code:Network", "network"))

    def ask_second() -> None:
        begun.wait()
        ask()
        second_answered.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "begun", begun, raising=False)
        patch.setattr(builtins, "second_answered", second_answered, raising=False)
        threads = [threading.Thread(target=ask), threading.Thread(target=ask_second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [4, 4]


def test_folders_that_cannot_be_code(tmp_path: Path) -> None:
    with pytest.raises(HecktorError, match=r"^--code absent: found no such folder"):
        Code.from_folders([tmp_path / "absent"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(HecktorError, match=r"^--code empty: no __init__.py"):
        Code.from_folders([tmp_path / "empty"])
    another = "found another module of this name"
    reasons = {"my-model": "found a name that Python cannot import", "numpy": another, "contract": another}
    for name, message in reasons.items():
        with pytest.raises(HecktorError, match=f"^--code {name}: {message}"):
            Code.from_folders([write_code(tmp_path / name, init="")])
    pair = [write_code(tmp_path / place / "twice", init="") for place in ("a", "b")]
    with pytest.raises(HecktorError, match=r"^--code twice: found two folders of this name"):
        Code.from_folders(pair)


def test_code_that_nothing_names_is_an_error(tmp_path: Path) -> None:
    code = Code.from_folders([write_code(tmp_path / "unused_code", init="")])
    with pytest.raises(HecktorError, match=r"^--code: found unused_code, which nothing uses"):
        code.check_used()


def test_the_digest_depends_only_on_content_and_names(tmp_path: Path) -> None:
    first = write_code(tmp_path / "a" / "digested", init="", inner="x = 1\n")
    second = write_code(tmp_path / "b" / "digested", init="", inner="x = 1\n")
    (second / "__pycache__").mkdir()
    (second / "__pycache__" / "inner.pyc").write_bytes(b"1")
    (second / ".hidden").write_text("2")
    assert [path.name for path in list_code_files(second)] == ["__init__.py", "inner.py"]
    digest = Code.from_folders([first]).digest("digested")
    assert Code.from_folders([second]).digest("digested") == digest
    (second / "inner.py").write_text("x = 2\n")
    assert Code.from_folders([second]).digest("digested") != digest
    (second / "inner.py").write_text("x = 1\n")
    (second / "inner.py").rename(second / "other.py")
    assert Code.from_folders([second]).digest("digested") != digest


def test_code_of_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders at the image's place for code are found; `--code` replaces them."""
    assert not find_installed_code(tmp_path / "absent")
    write_code(tmp_path / "opt" / "built_code", init="Head = 5\n")
    code = find_installed_code(tmp_path / "opt")
    assert code.find("built_code:Head", "head") == 5
    resolved = resolve_code([write_code(tmp_path / "resolve_code", init="")])
    assert list(resolved.folders) == ["resolve_code"]
    assert not resolve_code(None)
