"""Primary tumours found, and lesion counts."""

from __future__ import annotations

from typing import Any

from reporting.analyses.masks.detection import lesion_counts, primary_found


def primary(reference: int, predicted: int, shared: int) -> dict[str, Any]:
    return {"gtvp_reference_voxels": reference, "gtvp_predicted_voxels": predicted, "gtvp_intersection_voxels": shared}


def test_primary_found_of_all_and_of_those_answered(table) -> None:
    """A found, B marked beside it, C not marked, D marked without a tumour: 1 of 3 cases, and 1 of 3 marked."""
    rows = [primary(5, 4, 1), primary(5, 4, 0), primary(5, 0, 0), primary(0, 2, 0)]
    (found,) = primary_found(table({"ann": rows, "bea": [*rows[:1], *rows[2:3]]}))
    counts = [(row["of"], row["team"], row["found"], row["cases"]) for row in found.rows]
    assert counts == [
        ("cases with a GTVp", "ann", 1, 3),
        ("cases with a GTVp", "bea", 1, 2),
        ("cases in which the team marks a GTVp", "ann", 1, 3),
        ("cases in which the team marks a GTVp", "bea", 1, 1),
    ]
    assert found.rows[0]["fraction"] == 0.3333


def lesions(voxels: list[int], dsc: list[float | None], false: int = 0) -> dict[str, Any]:
    missed = dsc.count(None)
    return {
        "voxel_volume_mm3": 10.0,
        "gtvn_lesions_tp": len(dsc) - missed,
        "gtvn_lesions_fn": missed,
        "gtvn_lesions_fp": false,
        "gtvn_lesions_reference_voxels": voxels,
        "gtvn_lesions_dsc": dsc,
    }


def test_lesion_counts_and_lesion_wise_dsc(table) -> None:
    """Two detected with DSC 0.5 and 0.7, one missed, one false: (0.5 + 0.7 + 0 + 0) / 4 = 0.3."""
    (counts,) = lesion_counts(table({"ann": [lesions([10, 20], [0.5, None], 1), lesions([30], [0.7])]}))
    assert [(row["outcome"], row["lesions"], row["lesion_dsc"]) for row in counts.rows] == [
        ("detected", 2, 0.3),
        ("missed", 1, 0.3),
        ("false", 1, 0.3),
    ]


def test_without_any_lesion_there_is_nothing_to_count(table) -> None:
    """HECKTOR 2020 and 2021 have no GTVn."""
    assert lesion_counts(table({"ann": [lesions([], [])]})) == []
