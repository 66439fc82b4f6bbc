"""Publications that go wrong anywhere: a reader looks after every single change of the store."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kbuild.errors import HubError
from kbuild.hub.layout import UploadLayout
from kbuild.hub.repository import BusyError, RetryPolicy
from kbuild.mirror.layout import read_snapshot_name
from kbuild.mirror.store import MirrorStore
from kbuild.mirror.verify import verify_version
from tests.support.mirrors import CPU, CUDA, PLACE, Room, layout, room

SEEDS = {"folder": range(8), "memory": range(30)}
KILLED = KeyboardInterrupt


class Faulty:
    """A store that fails where a seed says, before or after it has done what it was asked."""

    verifies_copies: bool
    workers = 1  # the order of calls is the seed's business alone

    def __init__(self, store: MirrorStore, chance: random.Random, look: Callable[[], None]) -> None:
        self.store = store
        self.chance = chance
        self.look = look
        self.verifies_copies = store.verifies_copies
        self.faults = 0

    @property
    def shown(self) -> str:
        return self.store.shown

    def _maybe(self) -> None:
        if self.chance.random() < 0.12:
            self.faults += 1
            raise self.chance.choice([BusyError("later"), KILLED()])

    def _changed(self, act: Callable[[], None]) -> None:
        self._maybe()
        act()
        self.look()
        self._maybe()

    def blocks(self, path: str) -> Iterator[bytes]:
        self._maybe()
        yield from self.store.blocks(path)

    def read(self, path: str) -> bytes:
        self._maybe()
        return self.store.read(path)

    def write(self, path: str, source: Path | bytes) -> None:
        data = source if isinstance(source, bytes) else source.read_bytes()
        if self.chance.random() < 0.1 and "/refs/" not in path:
            self._changed(lambda: self.store.write(path, data[: len(data) // 2]))
            raise KILLED
        self._changed(lambda: self.store.write(path, source))

    def duplicate(self, old: str, new: str) -> None:
        self._changed(lambda: self.store.duplicate(old, new))

    def names(self, folder: str) -> tuple[str, ...]:
        self._maybe()
        return self.store.names(folder)

    def sizes(self, folder: str) -> dict[str, int]:
        self._maybe()
        return self.store.sizes(folder)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._changed(lambda path=path: self.store.remove([path]))  # type: ignore[misc]

    def point(self, link: str, target: str) -> bool:
        self._maybe()
        return self.store.point(link, target)

    def target(self, link: str) -> str | None:
        return self.store.target(link)

    def alone(self, path: str) -> AbstractContextManager[None]:
        return self.store.alone(path)


@pytest.mark.parametrize("kind", ["folder", "memory", "local"])
def test_only_small_files_are_read_as_a_whole(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("store", "folder_store", "fsspec_store"):
        monkeypatch.setattr(f"kbuild.mirror.{module}.MAX_SMALL_FILE", 1 << 20)
    store = room(kind, tmp_path).store
    store.write("a", bytes(1 << 20))
    store.write("b", bytes((1 << 20) + 1))
    assert len(store.read("a")) == 1 << 20
    with pytest.raises(HubError, match="b` has more than 1 MB"):
        store.read("b")


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_readers_see_whole_versions_and_the_last_try_succeeds(kind: str, tmp_path: Path) -> None:
    faults = [suffer(kind, seed, tmp_path / str(seed)) for seed in SEEDS[kind]]
    assert sum(faults) > len(faults)


def suffer(kind: str, seed: int, folder: Path) -> int:
    """Three publications, each tried until it succeeds; how often something went wrong."""
    chance = random.Random(seed)  # noqa: S311
    calm = room(kind, folder)
    whole: set[tuple[tuple[str, str], ...]] = set()

    def look() -> None:
        if read_snapshot_name(calm.store, PLACE) is not None:
            assert verify_version(calm.store, PLACE, RetryPolicy(tries=1)).faults in ((), _STRAY)
            assert tuple(calm.files().items()) in whole

    faulty = Faulty(calm.store, chance, look)
    for number in range(3):
        calm.later(2)
        wanted, expected = content(folder / str(number), number, chance, calm)
        whole.add(tuple(sorted(expected.items())))
        until_done(Room(faulty, calm.url, calm.time), wanted)
        assert calm.files() == dict(sorted(expected.items()))
        assert verify_version(calm.store, PLACE, RetryPolicy(tries=1)).faults == ()
    return faulty.faults


# The link of a folder follows the ref.
_STRAY = ("the link `org/relu/v1` leads to another snapshot",)


def until_done(place: Room, wanted: UploadLayout) -> None:
    for _ in range(200):
        try:
            place.publish(wanted)
        except (KeyboardInterrupt, BusyError):
            continue
        return
    pytest.fail("it never succeeded")


def content(
    root: Path, number: int, chance: random.Random, before: Room
) -> tuple[UploadLayout, dict[str, str]]:
    """Variants of one publication, and what the version holds afterwards."""
    names = chance.choice([(CPU,), (CUDA,), (CPU, CUDA)])
    more = {f"f{n}.py": chance.choice("abc") for n in range(chance.randrange(4))}
    wanted = layout(root, {name: {"__init__.py": str(number), **more} for name in names})
    kept = before.files() if number else {}
    others = {p: text for p, text in kept.items() if p.split("/")[1] not in names}
    mine = {e.path: Path(str(e.source)).read_text() for e in wanted.entries}
    return wanted, others | mine
