"""An evaluation that counts, and breaks the platform's rules on demand; it needs only the standard library."""

import argparse
import http.server
import json
import os
import sys
import time
from pathlib import Path

METRICS = ("gtvp_dsc_mean", "gtvn_dsc_agg", "gtvn_f1_agg", "c_index", "balanced_accuracy", "specificity")


def evaluate(options: argparse.Namespace) -> None:
    jobs = json.loads((options.input / "predictions.json").read_text())
    succeeded = [job for job in jobs if job["status"] == "Succeeded"]
    assert all((options.input / job["pk"] / "output").is_dir() for job in succeeded)
    share = len(succeeded) / len(list(options.ground_truth.glob("*.mha")))
    values = {name: {"value": share} for name in METRICS}
    if options.behave == "NaN":
        values["gtvn_f1_agg"]["value"] = float("nan")
    if options.behave != "missing":
        content = {"aggregates": values, "provenance": {"ranked_metrics": list(METRICS)}}
        (options.output / "metrics.json").write_text(json.dumps(content))


def serve(options: argparse.Namespace) -> None:
    """Evaluate at each call; only the server has some of the behaviours."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def reply(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.reply(200)

        def do_POST(self) -> None:
            if options.behave == "sleep":
                time.sleep(60)
            if options.behave == "die":
                sys.stderr.write("the reference was off\n")
                sys.stderr.flush()
                os._exit(3)
            evaluate(options)
            self.reply(200 if options.behave == "200" else 201)

        def log_message(self, *arguments: object) -> None:
            pass

    if options.behave == "die-at-start":
        sys.exit("error: no reference")
    http.server.HTTPServer(("", options.port), Handler).serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, default=Path("/input"))
    parser.add_argument("--output", type=Path, default=Path("/output"))
    parser.add_argument("--ground-truth", type=Path, default=Path("/opt/ml/input/data/ground_truth"))
    parser.add_argument("--behave", default="well")
    parser.add_argument("--serve", action="store_true", default=os.environ.get("TOY_SERVES") == "1")
    parser.add_argument("--port", type=int, default=4743)
    options = parser.parse_args()
    (serve if options.serve else evaluate)(options)
