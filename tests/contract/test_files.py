from __future__ import annotations

from pathlib import Path

import pytest

from contract.errors import ModelPackageError, OutputError
from contract.files import atomic_path, read_json, write_json, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_written_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "deep" / "a.json", {"x": 1})
    assert read_json(tmp_path / "deep" / "a.json") == {"x": 1}
    assert names(tmp_path / "deep") == ["a.json"]


def test_an_error_leaves_the_earlier_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "mask.nii.gz"
    target.write_text("earlier")

    def write_half() -> None:
        with atomic_path(target) as partial:
            assert partial.name.endswith(".nii.gz")
            partial.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert target.read_text() == "earlier"
    assert names(tmp_path) == ["mask.nii.gz"]


def test_nan_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert names(tmp_path) == []


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("I am a file")
    with pytest.raises(OutputError, match=r"^rfs\.json: cannot be written \(.+\), expected a writable folder"):
        write_json(tmp_path / "output" / "rfs.json", 1.0)


def test_a_folder_where_the_file_should_be(tmp_path: Path) -> None:
    (tmp_path / "rfs.json").mkdir()
    with pytest.raises(OutputError, match=r"^rfs\.json: cannot be written"):
        write_text(tmp_path / "rfs.json", "1.0")
    assert names(tmp_path) == ["rfs.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": NaN}', "found NaN"),
        ('{"a": -Infinity}', "found -Infinity"),
        ('{"a": 1e400}', "too large"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ("{'a': 1}", "not valid JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
    ids=lambda value: value[:16],
)
def test_strict_json(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ModelPackageError, match=rf"^a\.json: .*{message}.*expected|^a\.json: .*{message}"):
        read_json(path, error=ModelPackageError)


def test_nan_as_none_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[NaN, Infinity, 1e400, 1.5]")
    assert read_json(path, accept_nan=True) == [None, None, None, 1.5]


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" + "1," * 100 + "1]")
    with pytest.raises(OutputError, match="expected at most 20"):
        read_json(tmp_path / "a.json", max_bytes=20, error=OutputError)
