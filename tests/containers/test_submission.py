"""Archives that the platform would refuse; `test_examples` has an archive that it accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.errors import EngineError
from rehearsal.runners.containers import ContainerEngine
from rehearsal.submission.images import SOURCE, ImageBuilder, find_builder_engine

pytestmark = pytest.mark.container


def test_an_image_as_root_is_refused(engine: ContainerEngine, root_image: str, tmp_path: Path) -> None:
    built = ImageBuilder(find_builder_engine(None), SOURCE, "cpu", level=1)
    archive = tmp_path / "root.tar"
    engine.run("save", "--output", str(archive), root_image)
    with pytest.raises(EngineError, match=r"^root\.tar: no USER, so it runs as root"):
        built.load(archive)
