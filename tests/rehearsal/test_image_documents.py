"""The JSON members of an archive of an image are bounded together."""

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from contract.errors import EngineError
from rehearsal.images import facts_of_archive


def test_many_json_members_take_neither_memory_nor_time(tmp_path: Path):
    """Some kilobytes of gzip hold 2 MiB of `{},` each, which would be about 50 MB of dictionaries."""
    document = b"[" + b"{}," * ((2 << 20) // 3 - 2) + b"0]"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for number in range(20):
            member = tarfile.TarInfo(f"{number}.json")
            member.size = len(document)
            archive.addfile(member, io.BytesIO(document))
    path = tmp_path / "image.tar.gz"
    path.write_bytes(gzip.compress(content.getvalue()))
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    with pytest.raises(EngineError, match="JSON members of more than 33554432 bytes together"):
        facts_of_archive(path)
    assert tracemalloc.get_traced_memory()[1] < 60e6
    tracemalloc.stop()
