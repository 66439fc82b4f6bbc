"""The folder of a worker."""

from __future__ import annotations

from pathlib import Path

from kbuild.plugins.cluster.jobs import archive_files
from kbuild.plugins.cluster.worker import WorkerState


def test_an_archive_without_files_is_unpacked_once(tmp_path: Path) -> None:
    # A project of kernels in DSLs alone has no sources that a compiler reads.
    archive, fetched = archive_files({}), list[str]()

    def fetch(digest: str) -> bytes:
        fetched.append(digest)
        return archive.data

    worker_state = WorkerState(tmp_path, 1)
    try:
        folder = worker_state.unpacked(archive.digest, fetch)
        assert worker_state.unpacked(archive.digest, fetch) == folder
    finally:
        worker_state.close()
    assert folder.is_dir()
    assert fetched == [archive.digest]
