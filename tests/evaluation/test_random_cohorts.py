"""HECKTOR 2026: random cohorts against the definitions in loops."""

from __future__ import annotations

import numpy as np
import pytest

from contract.images.volumes import write_mask
from evaluation import evaluate
from evaluation.rows.mask import flatten_row
from tests.evaluation.staging import mask_of, write_plain


def mean(parts):
    return sum(parts) / len(parts)


def naive_dsc_agg(drawn, label):
    rows = [flatten_row(row["segmentation"]) for row in drawn]
    volumes = [row[f"{label}_{side}_mm3"] for row in rows for side in ("reference", "predicted")]
    return 2 * sum(row[f"{label}_intersection_mm3"] for row in rows) / sum(volumes)


def naive_balanced_accuracy(drawn, name):
    recalls = []
    for value in sorted({row[name][name] for row in drawn}):
        members = [row[name] for row in drawn if row[name][name] == value]
        recalls.append(mean([float(row[f"predicted_{name}"] == value) for row in members]))
    return mean(recalls) if len(recalls) > 1 else None


def naive_c_index(drawn):
    points = []
    rows = [row["rfs"] for row in drawn]
    for one in rows:
        for other in rows:
            censored_then = other["rfs_days"] == one["rfs_days"] and not other["relapse"]
            if one["relapse"] and (other["rfs_days"] > one["rfs_days"] or censored_then):
                points.append(1.0 if other["risk"] > one["risk"] else 0.5 if other["risk"] == one["risk"] else 0.0)
    return mean(points) if points else None


def naive_values(drawn):
    """The weighted sums of a list of rows, in which a patient may stand twice, by loops; None if one is undefined."""
    t, n = (naive_balanced_accuracy(drawn, name) for name in ("t_stage", "n_stage"))
    c = naive_c_index(drawn)
    if None in (t, n, c):
        return None
    dsc = mean([mean([row["segmentation"][label]["dsc"] for row in drawn]) for label in ("gtvp", "gtvn")])
    pooled = mean([naive_dsc_agg(drawn, label) for label in ("gtvp", "gtvn")])
    rest = 0.35 * (t + n) / 2 + 0.4 * c
    return {
        "dsc_mean": dsc,
        "tn_balanced_accuracy": (t + n) / 2,
        "score": 0.25 * dsc + rest,
        "score_pooled_dsc": 0.25 * pooled + rest,
    }


def random_cohort(tmp_path, grid, count, seed=5):
    """References and answers of patients with all classes, partly wrong; masks are shifted by up to two voxels."""
    rng = np.random.default_rng(seed)
    lines, masks, answers = ["PatientID,CenterID,T-stage,N-stage,RFS,Relapse"], {}, {}
    folder = tmp_path / "cohort"
    folder.mkdir()
    for number in range(count):
        case = f"R{number:02d}"
        nodes = bool(rng.random() < 0.7)
        write_mask(folder / f"{case}.mha", mask_of(grid, primary=2, nodes=nodes), grid)
        masks[case] = mask_of(grid, primary=2 + int(rng.integers(0, 3)), nodes=bool(rng.random() < 0.7))
        t, n, days = int(rng.integers(1, 5)), int(rng.integers(0, 4)), int(rng.integers(100, 1000))
        lines.append(f"{case},C,T{t},N{n},{days},{int(rng.random() < 0.6)}")
        guess = [int(rng.integers(low, low + 4)) for low in (1, 0)] if rng.random() < 0.5 else [t, n]
        answers[case] = {"t_stage": f"T{guess[0]}", "n_stage": f"N{guess[1]}", "rfs": float(rng.integers(1, 9)) * 100}
    (folder / "table.csv").write_text("\n".join(lines))
    return folder, write_plain(tmp_path / "answers", masks, answers, grid)


def test_intervals_of_weighted_sums_come_from_the_draws_of_their_parts(tmp_path, grid):
    """Each replicate draws patients from its own stream, again while a ranked metric is undefined.

    Weighted sums of fractions of patients alone do without draws.
    """
    truth, answers = random_cohort(tmp_path, grid, 9)
    found = evaluate(truth, edition="hecktor2026", predictions=answers, bootstraps=60, seed=11).to_dict()
    rows = found["results"]
    drawn = []
    for stream in np.random.default_rng(11).spawn(60):
        values_of = None
        while values_of is None:
            values_of = naive_values([rows[place] for place in stream.integers(0, len(rows), len(rows))])
        drawn.append(values_of)
    whole = naive_values(rows)
    for name in whole.keys() - {"tn_balanced_accuracy"}:
        estimate = found["aggregates"][name]
        low, high = np.quantile([one[name] for one in drawn], [0.025, 0.975])
        assert (estimate["value"], estimate["ci95_low"], estimate["ci95_high"]) == pytest.approx(
            (whole[name], low, high)
        )
