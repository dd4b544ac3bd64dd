"""Methods by the kinds of answers that they can give."""

from __future__ import annotations

from pathlib import Path

import pytest

from algorithm.request import METHODS, find_method
from contract.editions import Algorithm, load_edition
from contract.errors import HecktorError, ModelPackageError
from tests.algorithm.edition import EDITION, HPV, RFS, SEGMENTATION

FOUR = load_edition(str(Path(__file__).parents[1] / "editions" / "four_answers.json"))


@pytest.mark.parametrize(
    ("algorithm", "names"),
    [
        (SEGMENTATION, {"baseline", "threshold"}),
        (RFS, {"baseline", "clinical"}),
        (FOUR.algorithms[0], {"baseline", "threshold"}),
    ],
)
def test_methods_of_an_algorithm(algorithm: Algorithm, names: set[str]) -> None:
    assert {method.name for method in METHODS.values() if method.answers(algorithm)} == names


def test_each_method_reads_its_own_heads() -> None:
    """For 2026 the threshold answers heads by their fallbacks, because it reads no head."""
    assert METHODS["baseline"].head_name(RFS.answers[0]) == "rfs"
    assert METHODS["clinical"].head_name(HPV.answers[0]) == "hpv_clinical"
    with pytest.raises(ModelPackageError, match=r"^method 'threshold': no head for t_stage$"):
        METHODS["threshold"].head_name(FOUR.algorithms[0].find_answer("t_stage"))
    with pytest.raises(HecktorError, match="method 'threshold': cannot answer task rfs"):
        find_method("threshold", EDITION, RFS)
