from __future__ import annotations

import numpy as np

from contract.versions import installed_version


def test_versions() -> None:
    assert installed_version("numpy") == np.__version__
    assert installed_version("no-such-package") == "unknown"
