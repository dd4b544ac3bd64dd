"""Tables as spreadsheets save them: other encodings than UTF-8, and a first line that names the separator."""

from __future__ import annotations

from functools import partial

import pytest

from contract.errors import GroundTruthError, HecktorError
from contract.release.tables import read_cells
from evaluation.inputs.tables import read_table


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("P,ä\n1,2\n".encode("utf-16"), "UTF-16 text"),
        ("P,a\n1,2\n".encode("utf-16-le"), "UTF-16 text"),
        ("P,a\n1,2\n".encode("utf-16-be"), "UTF-16 text"),
        ("P,ä\n1,2\n".encode("latin-1"), "not UTF-8 text, perhaps Latin-1"),
        (b"sep=,\nP,a\n1,2\n", '"sep=," in line 1'),
        (b'\xef\xbb\xbf"SEP=;"\r\nP;a\r\n', '"SEP=;" in line 1'),
    ],
)
@pytest.mark.parametrize("read", [partial(read_table, error=GroundTruthError), read_cells])
def test_tables_of_spreadsheets_are_refused_with_the_step_to_save_them(tmp_path, content, problem, read):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(HecktorError) as error:
        read(path)
    assert str(error.value).startswith(f"t.csv: {problem}")
    assert 'a CSV file in UTF-8: save it as "CSV UTF-8"' in str(error.value)


def test_a_column_that_begins_with_sep_is_a_column(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfsep=arator,a\r\n1,2\r\n")
    assert read_table(tmp_path / "t.csv", GroundTruthError).header == ("sep=arator", "a")
    assert read_cells(tmp_path / "t.csv").columns == ("sep=arator", "a")
