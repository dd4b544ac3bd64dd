"""Rows kept by one evaluation and taken by the next: only where masks, rules and box are the same."""

from __future__ import annotations

import numpy as np
import pytest

from contract.images.volumes import Volume, read_volume, write_mask, write_volume
from contract.tasks import SEGMENTATION
from evaluation.inputs import masks
from evaluation.rows import mask as cases


@pytest.fixture
def phase(phase_of, blank):
    """Cases A and B, both predicted a voxel too far."""
    phase = phase_of(SEGMENTATION)
    mask = blank()
    mask[1:3, 2:4, 3:6] = 1
    mask[5:7, 5:7, 5:7] = 2
    phase.paths = {}
    for case in ("A", "B"):
        phase.truth_mask(case, mask)
        phase.paths[case] = phase.mask(case, np.roll(mask, 1, axis=2))
    return phase


@pytest.fixture
def resumed(phase, tmp_path, monkeypatch):
    """Evaluate with kept rows; gives the report, and the cases whose masks were read."""
    read = []
    real = cases.read_prediction

    def reading(path, grid, rule):
        read.append(next(case for case, known in phase.paths.items() if known == path))
        return real(path, grid, rule)

    monkeypatch.setattr(cases, "read_prediction", reading)

    def run(**changes):
        read.clear()
        report = phase.run(rows_dir=tmp_path / "rows", **changes)
        return report, list(read)

    return run


def test_a_second_run_reads_nothing_and_says_the_same(phase, resumed):
    first, read = resumed()
    assert read == ["A", "B"]
    second, read = resumed()
    assert read == []
    assert second == first == phase.run()


@pytest.mark.parametrize("change", [{"connectivity": "6"}, {"gtvp_empty": "one"}, {"surfaces": "both"}])
def test_other_rules_make_all_rows_anew(resumed, change):
    resumed()
    assert resumed(options=change)[1] == ["A", "B"]


def test_surfaces_come_back_as_they_were(phase, resumed, blank, grid):
    """An empty GTVp has infinite distances, which JSON does not have."""
    write_mask(phase.paths["A"], blank(), grid)
    options = {"surfaces": "both"}
    first, _ = resumed(options=options)
    second, read = resumed(options=options)
    assert read == []
    assert second == first
    assert first["results"][0]["gtvp_surface"] == "one_empty"


def test_another_mask_makes_its_own_row_anew(phase, resumed, blank, grid):
    resumed()
    write_mask(phase.paths["B"], blank(), grid)
    report, read = resumed()
    assert read == ["B"]
    assert report["results"][1]["gtvp_dsc"] == 0.0
    write_mask(phase.truth_dir / "A.mha", blank(), grid)
    assert resumed()[1] == ["A"]


def test_a_file_of_a_terabyte_is_not_hashed(phase, resumed):
    """Sparse, so that it takes no room; its pixels are those that its header promises."""
    path = phase.paths["B"]
    write_volume(path, Volume(read_volume(path).array, read_volume(path).geometry), compress=False)
    with path.open("r+b") as file:
        file.truncate(2**40)
    resumed()
    assert resumed()[1] == ["B"]


def test_a_fault_of_the_machine_is_forgotten(phase, resumed, monkeypatch):
    """The first run has no memory for A, which then counts as failed; the next one reads it."""
    reader = masks.read_volume

    def without_memory(path, *, error):
        if path == phase.paths["A"]:
            raise MemoryError
        return reader(path, error=error)

    monkeypatch.setattr(masks, "read_volume", without_memory)
    failed = resumed()[0]["cases"]["failed"]
    assert [(one["case"], one["why"]) for one in failed] == [("A", "anything.mha: cannot be read (MemoryError)")]
    monkeypatch.setattr(masks, "read_volume", reader)
    report, read = resumed()
    assert (report["cases"]["failed"], read) == ([], ["A"])
