"""A release with a single folder for all answers, as in HECKTOR 2026."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from contract.editions import load_edition

EDITION = load_edition("hecktor2026")
FOLDER = "HECKTOR 2026 Training Data"
TABLE = "HECKTOR_2026_Training_Task.csv"
HEADER = (
    "PatientID,CenterID,Age,Gender,Tobacco Consumption,Alcohol Consumption,Performance Status,Treatment,HPV Status,"
    "Relapse,RFS,T-stage,N-stage"
)
ROWS = {
    "CHUM-002": "CHUM-002,1,70.5,0.0,,0,1.0,1,,0.0,900,T2,N1",
    "MDA-001": "MDA-001,5,61,1,1,,0,1.0,1.0,1,320.0,T4,N0",
}


def format_table(rows: Iterable[str] = ROWS.values(), header: str = HEADER) -> str:
    return "\n".join([header, *rows, ""])


def add_patient(folder: Path, patient: str, suffixes: Iterable[str] = ("__CT", "__PT", "")) -> None:
    """Write a patient's files, which hold only their own names."""
    (folder / patient).mkdir(parents=True, exist_ok=True)
    for suffix in suffixes:
        content = b"\x1f\x8b" + bytes(10) + f"{patient}{suffix}".encode()
        (folder / patient / f"{patient}{suffix}.nii.gz").write_bytes(content)
