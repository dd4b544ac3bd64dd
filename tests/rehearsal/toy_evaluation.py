"""An evaluation that counts, with the standard library alone, and breaks the leaderboard's rules on demand."""

import argparse
import json
from pathlib import Path

METRICS = ("gtvp_dsc_mean", "gtvn_dsc_agg", "gtvn_f1_agg", "c_index", "balanced_accuracy", "specificity")

parser = argparse.ArgumentParser()
parser.add_argument("--input", type=Path, default=Path("/input"))
parser.add_argument("--output", type=Path, default=Path("/output"))
parser.add_argument("--ground-truth", type=Path, default=Path("/opt/ml/input/data/ground_truth"))
parser.add_argument("--behave", default="well")
options = parser.parse_args()

jobs = json.loads((options.input / "predictions.json").read_text())
succeeded = [job for job in jobs if job["status"] == "Succeeded"]
assert all((options.input / job["pk"] / "output").is_dir() for job in succeeded)
share = len(succeeded) / len(list(options.ground_truth.glob("*.mha")))
values = {name: {"value": share} for name in METRICS}
if options.behave == "null":
    values["gtvn_f1_agg"]["value"] = None
elif options.behave == "NaN":
    values["gtvn_f1_agg"]["value"] = float("nan")
elif options.behave == "list":
    values["gtvn_f1_agg"] = [share]
if options.behave != "missing":
    content = {"aggregates": values, "provenance": {"ranked_metrics": list(METRICS)}}
    (options.output / "metrics.json").write_text(json.dumps(content))
