"""What organisers and entrants hand in: image formats, zips, encodings, separators, columns and values."""

from __future__ import annotations

import json
import tempfile
import zipfile
from functools import partial

import pytest

from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.volumes import write_mask
from contract.release.tables import read_cells
from evaluation import evaluate_teams
from evaluation.inputs import mask_files
from evaluation.inputs.submission import PredictedClass, read_class, read_risk
from evaluation.inputs.tables import read_table
from tests.evaluation.staging import make_tumour
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION, STATUS

# Patients A to D recur after 100, 200, 300 and 1,095 days: risks 4, 3, 2, 1 order all six pairs.
FOLLOW_UP = "PatientID,Relapse,RFS\nA,1,100\nB,1,200\nC,1,300\nD,1,1095\n"


@pytest.fixture
def masks(phase_of):
    phase = phase_of(SEGMENTATION)
    phase.add_truth_mask("A", make_tumour())
    phase.add_truth_mask("B", make_tumour(), suffix=".nii")
    phase.folder = phase.root / "predictions"
    phase.folder.mkdir()
    return phase


def test_masks_in_another_format_are_named(masks, grid):
    """A prediction fails only its case, a reference ends the run."""
    write_mask(masks.folder / "A.mha", make_tumour(), grid)
    (masks.folder / "B.nrrd").write_bytes(b"NRRD0004")
    rows = {row["case"]: row["error"] for row in masks.run(predictions=masks.folder)["results"]}
    assert rows["A"] is None
    assert "B.nrrd" in rows["B"]
    (masks.truth_dir / "C.unknown").write_bytes(b"")
    with pytest.raises(GroundTruthError, match=r"C\.unknown"):
        masks.run(predictions=masks.folder)


def test_masks_in_a_zip_lie_at_any_depth(masks, grid):
    write_mask(masks.folder / "A.nii.gz", make_tumour(), grid)
    write_mask(masks.folder / "B.nii.gz", make_tumour(), grid)
    archive = masks.root / "upload.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.write(masks.folder / "A.nii.gz", "team/masks/A.nii.gz")
        opened.write(masks.folder / "B.nii.gz", "B.nii.gz")
        opened.writestr("__MACOSX/team/masks/._A.nii.gz", b"")
    report = masks.run(predictions=archive)
    assert report["cases"]["used"] == 2
    assert all(row["error"] is None for row in report["results"])


@pytest.mark.parametrize(("members", "problem"), [(("A.nii.gz", "x/A.nii.gz"), "x/A.nii.gz"), (("A.txt",), "no mask")])
def test_a_zip_with_two_masks_of_a_name_or_none_is_refused(masks, members, problem):
    archive = masks.root / "upload.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for member in members:
            opened.writestr(member, b"")
    with pytest.raises(PredictionError, match=problem):
        masks.run(predictions=archive)


def test_the_list_of_members_of_a_zip_is_bounded(masks, monkeypatch):
    """A list of 40 members of 46 bytes and a name of 100 has 5,840 bytes; memory would be ten times that."""
    archive = masks.root / "upload.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for member in range(40):
            opened.writestr(f"{member:0100}", b"")
    monkeypatch.setattr(mask_files, "_MAX_LIST_BYTES", 5_000)
    with pytest.raises(PredictionError, match=r"upload.zip: cannot be read \(a list of members"):
        masks.run(predictions=archive)


def test_a_broken_archive_fails_only_its_team(masks, grid, monkeypatch, capsys):
    """An archive of 65 MB is refused before it is unpacked, since the two reference masks take less than 1 MB.

    Each archive is unpacked for its own team: two archives are never on the disk at once.
    """
    (masks.root / "teams").mkdir()
    for team in ("good", "fine"):
        with zipfile.ZipFile(masks.root / "teams" / f"{team}.zip", "w") as opened:
            for case in "AB":
                write_mask(masks.folder / f"{case}.mha", make_tumour(), grid)
                opened.write(masks.folder / f"{case}.mha", f"{case}.mha")
    with zipfile.ZipFile(masks.root / "teams" / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("A.mha", bytes(65 << 20))
    (masks.root / "teams" / "damaged.zip").write_bytes(b"PK\x03\x04 and no more")
    monkeypatch.setattr(tempfile, "tempdir", str(masks.root / "temporary"))
    (masks.root / "temporary").mkdir()
    folder_counts = []

    def unpack(archive, folder, max_bytes, of=mask_files._unpack):
        of(archive, folder, max_bytes)
        folder_counts.append(len(list((masks.root / "temporary").glob("hecktor-masks-*"))))

    monkeypatch.setattr(mask_files, "_unpack", unpack)
    with pytest.raises(HecktorError, match=r"2 of 4 teams .*bomb.zip: 68 MB of masks.*damaged.zip: cannot be read"):
        evaluate_teams(
            masks.truth_dir, masks.root / "teams", task="1", output=masks.root / "out", bootstraps=0, workers=1
        )
    assert folder_counts == [1, 1]
    assert sorted(path.parent.name for path in (masks.root / "out").glob("*/metrics.json")) == ["fine", "good"]


def score_risks(phase, text, name="risks.csv", **changes):
    path = phase.root / name
    path.write_text(text)
    return phase.run(predictions=path, **changes)["aggregates"]["c_index"]["value"]


@pytest.fixture
def follow_up(phase_of):
    phase = phase_of(RFS)
    phase.add_truth_table(FOLLOW_UP)
    return phase


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (",PatientID,Prediction\n0,A,4\n1,B,3\n2,C,2\n3,D,1\n", "p.csv"),
        ("PatientID\trisk\nA\t4\nB\t3\nC\t2\nD\t1\n", "p.tsv"),
        ("PatientID;risk\nA;4,5\nB;3,5\nC;2,5\nD;1,5\n", "p.csv"),
        (json.dumps([{"PatientID": c, "Prediction": r} for c, r in zip("ABCD", (4, 3, 2.5, 1))]), "p.json"),  # noqa: B905
        ("PatientID,risk,Prediction\nA,4,4.0\nB,3,3\nC,2,2\nD,1,1\n", "p.csv"),
        ("PatientID,risk,note,note,\nA,4,x,y,\nB,3,x,y,\nC,2,x,y,\nD,1,x,y,\n", "p.csv"),
        ("PatientID,RFS,risk\nA,1,4\nB,2,3\nC,3,2\nD,4,1\n", "p.csv"),
        ("Patient ID,prediction\nA,4\nB,3\nC,2\nD,1\n", "p.csv"),
    ],
)
def test_tables_as_editions_ask_for_them(follow_up, text, name):
    """All six pairs have the right order: the C-index is 1."""
    assert score_risks(follow_up, text, name) == 1.0


@pytest.mark.parametrize(
    ("second_column", "problem"), [("risk", "appears twice"), ("Prediction", "mean the same and differ")]
)
def test_two_columns_of_one_meaning_that_disagree_are_refused(follow_up, second_column, problem):
    """By the first column the C-index is 1, by the second one 0."""
    with pytest.raises(PredictionError, match=rf"line 2.*{problem}"):
        score_risks(follow_up, f"PatientID,risk,{second_column}\nA,4,1\nB,3,2\nC,2,3\nD,1,4\n")


def test_columns_of_a_class_agree_in_any_spelling(phase_of):
    """Positive is 1: both columns say the same of A; of B they differ in the second table."""
    phase = phase_of(HPV)
    phase.add_truth_table("PatientID,HPV Status,note,note,,\nA,1,1,2,,\nB,0,1,2,,\n")
    (phase.root / "hpv.csv").write_text("PatientID,hpv,HPV Status\nA,1,positive\nB,0,false\n")
    assert phase.run(predictions=phase.root / "hpv.csv")["aggregates"]["balanced_accuracy"]["value"] == 1.0
    (phase.root / "hpv.csv").write_text("PatientID,hpv,HPV Status\nA,1,positive\nB,0,1\n")
    with pytest.raises(PredictionError, match="line 3: columns hpv and HPV Status mean the same and differ"):
        phase.run(predictions=phase.root / "hpv.csv")


def test_a_time_is_no_risk_unless_the_direction_is_time(follow_up):
    """Times in the order of the recurrences: taken as risks they would give a C-index of 0.

    An object of a patient and its prediction is an answer on the platform.
    """
    times = "PatientID,RFS\nA,100\nB,200\nC,300\nD,400\n"
    with pytest.raises(PredictionError, match=r"column RFS.*direction=time"):
        score_risks(follow_up, times)
    assert score_risks(follow_up, times, options={"direction": "time"}) == 1.0
    for case, risk in zip("ABCD", (4, 3, 2, 1), strict=True):
        follow_up.add_value(case, json.dumps({"PatientID": case, "Prediction": risk}))
    assert follow_up.run()["aggregates"]["c_index"]["value"] == 1.0


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ('PatientID,Relapse,RFS\nA,1,100\nB,1,200\nC,1,300\nD,1,"1,095"\n', "line 5"),
        ("PatientID;Relapse;RFS\nA;1;100\nB;1;200\nC;1;808\nD;1;1,698\n", "line 5"),
        ("PatientID\tRelapse\tRFS\nA\t1\t1.5\nB\t1\t2,5\n", "line 3"),
    ],
)
def test_a_separator_of_thousands_is_never_a_decimal_point(phase_of, table, line):
    phase = phase_of(RFS)
    phase.add_truth_table(table)
    with pytest.raises(GroundTruthError, match=line):
        score_risks(phase, "PatientID,risk\nA,4\nB,3\nC,2\nD,1\n")


def test_names_with_composed_and_decomposed_letters_match(masks, grid, tmp_path):
    """Two references have composed letters, their masks decomposed ones as macOS writes them: the DSC is 1."""
    composed, decomposed = "CH\N{LATIN CAPITAL LETTER U WITH DIAERESIS}", "CHU\N{COMBINING DIAERESIS}"
    for path in sorted(masks.truth_dir.iterdir()):
        path.unlink()
    for index in (1, 2):
        write_mask(masks.truth_dir / f"{composed}-{index}.mha", make_tumour(), grid)
        write_mask(masks.folder / f"{decomposed}-{index}.nii.gz", make_tumour(), grid)
    (masks.folder / f"._{decomposed}-1.nii.gz").write_bytes(b"\0\5\x16\7")
    (masks.truth_dir / "._table.csv").write_bytes(b"\0\5\x16\7")
    report = masks.run(predictions=masks.folder)
    assert report["cases"]["used"] == 2
    assert report["aggregates"]["gtvp_dsc_mean"]["value"] == 1.0
    (tmp_path / "a.csv").write_text(f"PatientID,Prediction\n{decomposed}-1,0.5\n", encoding="utf-8")
    (tmp_path / "a.json").write_text('[{"PatientID": "CHU\\u0308-1", "Prediction": 0.5}]')
    for name in ("a.csv", "a.json"):
        assert [row["PatientID"] for row in read_table(tmp_path / name, PredictionError).rows] == [f"{composed}-1"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("P,ä\n1,2\n".encode("utf-16"), "UTF-16 text"),
        ("P,a\n1,2\n".encode("utf-16-le"), "UTF-16 text"),
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NaN", "found NaN"),
        ("1e999", "too large"),
        ('"0.7"', "found a string"),
        ("true", "found a boolean"),
        ('{"risk": 0.7}', "found a object"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "nested too deeply|found a object"),
        ("0." + "7" * 70_000, "bytes, expected at most"),
    ],
)
def test_unusable_risks(tmp_path, text, message):
    (tmp_path / "rfs.json").write_text(text)
    with pytest.raises(PredictionError, match=message):
        read_risk(tmp_path / "rfs.json")


@pytest.mark.parametrize("text", ["1", '"true"', "null", "True", '{"hpv": true, "probability": 0.9}'])
def test_classes(tmp_path, text):
    """A probability is not read from the platform."""
    (tmp_path / "hpv-status.json").write_text("true")
    assert read_class(tmp_path / "hpv-status.json", STATUS) == PredictedClass(True)
    (tmp_path / "hpv-status.json").write_text(text)
    with pytest.raises(PredictionError):
        read_class(tmp_path / "hpv-status.json", STATUS)
