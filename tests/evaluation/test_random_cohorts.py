"""HECKTOR 2026: random cohorts against the definitions in loops."""

from __future__ import annotations

import numpy as np
import pytest

from contract.images.volumes import write_mask
from evaluation import evaluate
from evaluation.rows.mask import flatten_row
from tests.evaluation.staging import make_mask, write_plain


def mean(parts):
    return sum(parts) / len(parts)


def compute_dsc_agg(drawn, label):
    rows = [flatten_row(row["segmentation"]) for row in drawn]
    volumes = [row[f"{label}_{side}_mm3"] for row in rows for side in ("reference", "predicted")]
    return 2 * sum(row[f"{label}_intersection_mm3"] for row in rows) / sum(volumes)


def compute_balanced_accuracy(drawn, name):
    recalls = []
    for value in sorted({row[name][name] for row in drawn}):
        members = [row[name] for row in drawn if row[name][name] == value]
        recalls.append(mean([float(row[f"predicted_{name}"] == value) for row in members]))
    return mean(recalls) if len(recalls) > 1 else None


def compute_c_index(drawn):
    points = []
    rows = [row["rfs"] for row in drawn]
    for first in rows:
        for second in rows:
            censored_then = second["rfs_days"] == first["rfs_days"] and not second["relapse"]
            if first["relapse"] and (second["rfs_days"] > first["rfs_days"] or censored_then):
                points.append(
                    1.0 if second["risk"] > first["risk"] else 0.5 if second["risk"] == first["risk"] else 0.0
                )
    return mean(points) if points else None


def compute_sums(drawn):
    """Compute the weighted sums of a list of rows by loops, with patients repeated; return None if a part is undefined."""
    t, n = (compute_balanced_accuracy(drawn, name) for name in ("t_stage", "n_stage"))
    c = compute_c_index(drawn)
    if None in (t, n, c):
        return None
    dsc = mean([mean([row["segmentation"][label]["dsc"] for row in drawn]) for label in ("gtvp", "gtvn")])
    pooled = mean([compute_dsc_agg(drawn, label) for label in ("gtvp", "gtvn")])
    rest = 0.35 * (t + n) / 2 + 0.4 * c
    return {
        "dsc_mean": dsc,
        "tn_balanced_accuracy": (t + n) / 2,
        "score": 0.25 * dsc + rest,
        "score_pooled_dsc": 0.25 * pooled + rest,
    }


def draw_cohort(tmp_path, grid, count, seed=5):
    """Write references and answers of patients with all classes, partly wrong; masks are shifted by up to two voxels."""
    rng = np.random.default_rng(seed)
    lines, masks, answers = ["PatientID,CenterID,T-stage,N-stage,RFS,Relapse"], {}, {}
    folder = tmp_path / "cohort"
    folder.mkdir()
    for number in range(count):
        case = f"R{number:02d}"
        nodes = bool(rng.random() < 0.7)
        write_mask(folder / f"{case}.mha", make_mask(grid, primary=2, nodes=nodes), grid)
        masks[case] = make_mask(grid, primary=2 + int(rng.integers(0, 3)), nodes=bool(rng.random() < 0.7))
        t, n, days = int(rng.integers(1, 5)), int(rng.integers(0, 4)), int(rng.integers(100, 1000))
        lines.append(f"{case},C,T{t},N{n},{days},{int(rng.random() < 0.6)}")
        guess = [int(rng.integers(low, low + 4)) for low in (1, 0)] if rng.random() < 0.5 else [t, n]
        answers[case] = {"t_stage": f"T{guess[0]}", "n_stage": f"N{guess[1]}", "rfs": float(rng.integers(1, 9)) * 100}
    (folder / "table.csv").write_text("\n".join(lines))
    return folder, write_plain(tmp_path / "answers", masks, answers, grid)


def test_intervals_of_weighted_sums_come_from_the_draws_of_their_parts(tmp_path, grid):
    """Replicates draw patients from their own streams, again while a ranked metric is undefined.

    Weighted sums of only fractions of patients need no draws.
    """
    truth, answers = draw_cohort(tmp_path, grid, 9)
    result = evaluate(truth, edition="hecktor2026", predictions=answers, bootstraps=60, seed=11).to_dict()
    rows = result["results"]
    drawn = []
    for stream in np.random.default_rng(11).spawn(60):
        values_of = None
        while values_of is None:
            values_of = compute_sums([rows[place] for place in stream.integers(0, len(rows), len(rows))])
        drawn.append(values_of)
    whole = compute_sums(rows)
    for name in whole.keys() - {"tn_balanced_accuracy"}:
        estimate = result["aggregates"][name]
        low, high = np.quantile([sums[name] for sums in drawn], [0.025, 0.975])
        assert (estimate["value"], estimate["ci95_low"], estimate["ci95_high"]) == pytest.approx(
            (whole[name], low, high)
        )
