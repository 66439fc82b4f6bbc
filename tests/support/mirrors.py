"""A mirror of each kind, and versions of a kernel to put into it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from kbuild.hub.layout import UploadLayout, read_layout
from kbuild.hub.repository import Repo, RetryPolicy
from kbuild.mirror import open_mirror
from kbuild.mirror.layout import MANIFEST, VersionPaths, read_snapshot_name
from kbuild.mirror.publish import PublishResult, PublishRun, publish
from kbuild.mirror.store import MirrorStore, parse_mirror_address

CPU = "torch213-cxx11-cpu-x86_64-linux"
CUDA = "torch213-cxx11-cu130-x86_64-linux"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
PLACE = VersionPaths(Repo("org/relu"), "v1")
_ROOMS = itertools.count()


def metadata(version: int = 1, **more: object) -> str:
    entries = {"name": "relu", "id": "_relu_1", "version": version, "license": "MIT"}
    rest = {"python-depends": [], "backend": {"type": "cpu"}}
    return json.dumps({**entries, **rest, **more})


def built(root: Path, variants: Mapping[str, Mapping[str, str]]) -> tuple[Path, ...]:
    """Variant folders with those files."""
    folders = []
    for name, files in variants.items():
        folder = root / "build" / name
        for path, text in {"metadata.json": metadata(), **files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        folders.append(folder)
    return tuple(folders)


@dataclass
class Room:
    """One mirror, with a clock of its own."""

    store: MirrorStore
    url: str
    time: datetime = NOON
    waits: list[float] = field(default_factory=list)

    def publish(self, layout: UploadLayout, place: VersionPaths = PLACE) -> PublishResult:
        retry = RetryPolicy(tries=4, sleep=self.waits.append)
        return publish(PublishRun(self.store, place, layout, retry, now=lambda: self.time))

    def later(self, days: float) -> None:
        self.time += timedelta(days=days)

    def snapshot(self, place: VersionPaths = PLACE) -> str:
        found = read_snapshot_name(self.store, place)
        assert found is not None
        return found

    def files(self, place: VersionPaths = PLACE) -> dict[str, str]:
        """What readers of a version see; nothing of kbuild's own."""
        top = place.snapshot(self.snapshot(place))
        paths = self.store.sizes(top).keys() - {MANIFEST}
        return {path: self.store.read(f"{top}/{path}").decode() for path in sorted(paths)}


def room(kind: str, tmp_path: Path) -> Room:
    """A mirror in a folder, in memory, or in a folder behind fsspec."""
    urls = {
        "folder": str(tmp_path / "mirror"),
        "memory": f"memory://mirror-{next(_ROOMS)}",
        "local": f"local://{tmp_path}/mirror",
    }
    address = parse_mirror_address(urls[kind], tmp_path)
    return Room(open_mirror(address), urls[kind])


def layout(
    root: Path,
    variants: Mapping[str, Mapping[str, str]],
    card: Mapping[str, bytes] | None = None,
) -> UploadLayout:
    return read_layout(built(root, variants), None, card)
