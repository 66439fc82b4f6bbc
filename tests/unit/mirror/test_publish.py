"""Publishing into mirrors: what is there afterwards, and what readers see meanwhile."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.errors import FileConflictError, HubError
from kbuild.hub.repository import BusyError, Repo
from kbuild.mirror.layout import (
    MANIFEST,
    ManifestError,
    VersionPaths,
    parse_manifest,
    read_snapshot_name,
    read_version,
)
from kbuild.mirror.verify import verify_version
from tests.support.mirrors import CPU, CUDA, PLACE, Room, layout, room

KINDS = ("folder", "memory", "local")
ONE = {CPU: {"__init__.py": "one"}}
TWO = {CPU: {"__init__.py": "two", "more.py": "x"}}


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Room:
    return room(request.param, tmp_path)


def path_of(found: Room, path: str) -> str:
    return f"{PLACE.snapshot(found.snapshot())}/{path}"


def faults(found: Room) -> tuple[str, ...]:
    from kbuild.hub.repository import RetryPolicy

    return verify_version(found.store, PLACE, RetryPolicy(tries=2, sleep=lambda _: None)).faults


class TestWhatIsThere:
    def test_every_file_and_a_manifest_with_hashes(self, place: Room, tmp_path: Path) -> None:
        wanted = layout(tmp_path, ONE, {"README.md": b"# relu\n"})
        outcome = place.publish(wanted)
        assert outcome.changed
        assert outcome.sent == sum(e.size for e in (*wanted.entries, *wanted.card))
        assert place.files() == {
            "README.md": "# relu\n",
            f"build/{CPU}/__init__.py": "one",
            f"build/{CPU}/metadata.json": (tmp_path / f"build/{CPU}/metadata.json").read_text(),
        }
        document = json.loads(place.store.read(path_of(place, MANIFEST)))
        assert document["kernel"] == "org/relu"
        assert document["snapshot"] == place.snapshot()
        assert {p: f["sha256"] for p, f in document["files"].items()} == {
            entry.path: entry.sha256 for entry in (*wanted.entries, *wanted.card)
        }
        assert faults(place) == ()

    def test_the_same_again_changes_and_sends_nothing(self, place: Room, tmp_path: Path) -> None:
        place.publish(layout(tmp_path, ONE))
        before = place.store.sizes("")
        place.later(3)
        again = place.publish(layout(tmp_path, ONE))
        assert not again.changed
        assert again.sent == 0
        assert place.store.sizes("") == before

    def test_only_what_differs_is_sent(self, place: Room, tmp_path: Path) -> None:
        place.publish(layout(tmp_path, {CPU: {"__init__.py": "one", "big.so": "x" * 100_000}}))
        again = place.publish(layout(tmp_path, {CPU: {"__init__.py": "two"}}))
        assert again.sent == 3
        assert place.files()[f"build/{CPU}/big.so"] == "x" * 100_000
        assert faults(place) == ()

    def test_stale_files_go_and_other_variants_stay(self, place: Room, tmp_path: Path) -> None:
        place.publish(layout(tmp_path / "1", {**TWO, CUDA: {"__init__.py": "cuda"}}))
        place.publish(layout(tmp_path / "2", ONE))
        assert sorted(place.files()) == [
            *(f"build/{CPU}/{name}" for name in ("__init__.py", "metadata.json")),
            *(f"build/{CUDA}/{name}" for name in ("__init__.py", "metadata.json")),
        ]
        assert place.files()[f"build/{CUDA}/__init__.py"] == "cuda"

    def test_versions_and_kernels_beside_each_other(self, place: Room, tmp_path: Path) -> None:
        others = (VersionPaths(PLACE.repo, "v2"), VersionPaths(Repo("org/gelu"), "v1"))
        for number, where in enumerate((PLACE, *others)):
            files = {CPU: {"__init__.py": str(number)}}
            place.publish(layout(tmp_path / str(number), files), where)
        for number, where in enumerate((PLACE, *others)):
            assert place.files(where)[f"build/{CPU}/__init__.py"] == str(number)

    def test_back_to_what_there_was(self, place: Room, tmp_path: Path) -> None:
        place.publish(layout(tmp_path / "1", ONE))
        first = place.snapshot()
        place.publish(layout(tmp_path / "2", TWO))
        place.publish(layout(tmp_path / "1", ONE))
        assert place.snapshot() == first
        assert faults(place) == ()


class TestOldSnapshots:
    def test_what_was_just_replaced_stays_and_goes_a_day_later(
        self, place: Room, tmp_path: Path
    ) -> None:
        names = []
        for number in range(3):
            place.later(2)
            place.publish(layout(tmp_path, {CPU: {"__init__.py": str(number)}}))
            names.append(place.snapshot())
        kept = {path.split("/")[2] for path in place.store.sizes("") if "/snapshots/" in path}
        assert kept == {*names[1:]}

    def test_young_ones_stay(self, place: Room, tmp_path: Path) -> None:
        for number in range(4):
            place.publish(layout(tmp_path, {CPU: {"__init__.py": str(number)}}))
        kept = {path.split("/")[2] for path in place.store.sizes("") if "/snapshots/" in path}
        assert len(kept) == 4

    def test_what_kbuild_did_not_write_is_not_deleted(self, place: Room, tmp_path: Path) -> None:
        place.publish(layout(tmp_path, ONE))
        note = path_of(place, "notes.txt")
        foreign = [f"kernels--org--relu/snapshots/{'0' * 40}/a.txt", "else/b.txt", note]
        for path in foreign:
            place.store.write(path, b"mine")
        for number in range(3):
            place.later(2)
            place.publish(layout(tmp_path, {CPU: {"__init__.py": str(number)}}))
        assert all(place.store.read(path) == b"mine" for path in foreign)
        assert path_of(place, "x").rpartition("/")[0] not in note


class TestReaders:
    def test_a_version_is_never_seen_half_written(self, place: Room, tmp_path: Path) -> None:
        """Whatever is cut off, readers see the old version or the new one, whole."""
        place.publish(layout(tmp_path / "1", ONE))
        old = place.files()
        writes = 0
        real = place.store.write

        def counted(path: str, source: Path | bytes) -> None:
            nonlocal writes
            writes += 1
            if writes > limit:
                raise KeyboardInterrupt
            real(path, source)

        place.store.write = counted  # type: ignore[method-assign]
        new = layout(tmp_path / "2", TWO)
        seen = []
        for limit in range(10):
            writes = 0
            try:
                place.publish(new)
            except KeyboardInterrupt:
                assert place.files() == old
                seen.append(limit)
                continue
            break
        assert seen == [0, 1, 2]  # the manifest; a file of two; what names them
        assert place.files() != old
        assert faults(place) == ()

    def test_what_arrived_damaged_is_not_shown(self, place: Room, tmp_path: Path) -> None:
        real = place.store.write

        def damaging(path: str, source: Path | bytes) -> None:
            real(path, b"not it" if path.endswith("__init__.py") else source)

        place.store.write = damaging  # type: ignore[method-assign]
        with pytest.raises(HubError, match=r"returns other bytes for `build/.*__init__.py`"):
            place.publish(layout(tmp_path, ONE))
        assert read_snapshot_name(place.store, PLACE) is None
        place.store.write = real  # type: ignore[method-assign]
        place.publish(layout(tmp_path, ONE))
        assert faults(place) == ()

    def test_somebody_else_published_meanwhile(self, place: Room, tmp_path: Path) -> None:
        """Their variant and ours are both there afterwards."""
        mine = layout(tmp_path / "1", ONE)
        theirs = layout(tmp_path / "2", {CUDA: {"__init__.py": "cuda"}})
        other = Room(place.store, place.url)
        real = place.store.write

        def overtaken(path: str, source: Path | bytes) -> None:
            place.store.write = real  # type: ignore[method-assign]
            if path.endswith("__init__.py"):
                real(path, source)
                _unlocked(other, lambda: other.publish(theirs))
            else:
                place.store.write = overtaken  # type: ignore[method-assign]
                real(path, source)

        place.store.write = overtaken  # type: ignore[method-assign]
        place.publish(mine)
        found = {path.split("/")[1] for path in place.files()}
        assert found == {CPU, CUDA}
        assert faults(place) == ()

    def test_two_at_once_in_one_folder_wait_for_each_other(self, tmp_path: Path) -> None:
        parts = [layout(tmp_path / v, {v: {"__init__.py": v}}) for v in (CPU, CUDA)]
        rooms = [room("folder", tmp_path) for _ in parts]
        threads = [
            threading.Thread(target=r.publish, args=(p,)) for r, p in zip(rooms, parts, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {path.split("/")[1] for path in rooms[0].files()} == {CPU, CUDA}


class TestTrouble:
    def test_a_busy_store_is_asked_again(self, place: Room, tmp_path: Path) -> None:
        real, failures = place.store.write, 3

        def busy(path: str, source: Path | bytes) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise BusyError("too many requests", wait=7)
            real(path, source)

        place.store.write = busy  # type: ignore[method-assign]
        place.publish(layout(tmp_path, ONE))
        assert len(place.waits) == 3
        assert all(wait >= 7 for wait in place.waits)
        assert faults(place) == ()

    def test_what_an_interrupted_run_sent_is_not_sent_again(
        self, place: Room, tmp_path: Path
    ) -> None:
        real = place.store.write

        def cut(path: str, source: Path | bytes) -> None:
            if path.endswith("/refs/v1"):
                raise KeyboardInterrupt
            real(path, source)

        place.store.write = cut  # type: ignore[method-assign]
        wanted = layout(tmp_path, ONE)
        with pytest.raises(KeyboardInterrupt):
            place.publish(wanted)
        place.store.write = real  # type: ignore[method-assign]
        outcome = place.publish(wanted)
        assert outcome.changed
        assert outcome.sent == 0

    def test_a_file_that_is_gone_comes_back(self, place: Room, tmp_path: Path) -> None:
        wanted = layout(tmp_path, ONE)
        place.publish(wanted)
        place.store.remove([path_of(place, f"build/{CPU}/__init__.py")])
        assert faults(place) == (f"`build/{CPU}/__init__.py` is gone",)
        place.publish(wanted)
        assert faults(place) == ()

    def test_somebody_elses_file_that_is_gone_is_said(self, place: Room, tmp_path: Path) -> None:
        place.publish(layout(tmp_path / "1", {CUDA: {"__init__.py": "cuda"}}))
        place.store.remove([path_of(place, f"build/{CUDA}/__init__.py")])
        with pytest.raises(HubError, match="damaged") as raised:
            place.publish(layout(tmp_path / "2", ONE))
        assert "publish the variant" in raised.value.hint

    def test_a_cache_of_downloads_is_no_mirror(self, place: Room, tmp_path: Path) -> None:
        place.store.write(PLACE.ref, b"a" * 40)
        place.store.write(f"{PLACE.snapshot('a' * 40)}/build/x", b"x")
        with pytest.raises(FileConflictError, match="not written by `kbuild publish`"):
            place.publish(layout(tmp_path, ONE))
        assert place.store.read(f"{PLACE.snapshot('a' * 40)}/build/x") == b"x"

    def test_a_folder_in_the_links_place(self, tmp_path: Path) -> None:
        found = room("folder", tmp_path)
        (tmp_path / "mirror/org/relu/v1").mkdir(parents=True)
        with pytest.raises(FileConflictError, match="not made by kbuild"):
            found.publish(layout(tmp_path, ONE))
        assert (tmp_path / "mirror/org/relu/v1").is_dir()


class TestVerify:
    def test_whatever_nobody_published_is_named(self, tmp_path: Path) -> None:
        """Bytecode too, which an import runs; a pipe in place of a file is no reason to wait."""
        found = room("folder", tmp_path)
        found.publish(layout(tmp_path, ONE))
        variant = tmp_path / "mirror" / path_of(found, f"build/{CPU}")
        (variant / "__pycache__").mkdir()
        (variant / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"")
        (variant / "extra").symlink_to(tmp_path)
        assert faults(found) == (
            f"`build/{CPU}/__pycache__/__init__.cpython-311.pyc` is not in the manifest",
            f"`build/{CPU}/extra` is not in the manifest",
        )
        (variant / "__init__.py").unlink()
        os.mkfifo(variant / "__init__.py")
        with pytest.raises(HubError, match="is not a file"):
            faults(found)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda s, p: s.write(p(f"build/{CPU}/__init__.py"), b"tow"), "differs"),
            (lambda s, p: s.write(p(f"build/{CPU}/evil.py"), b"x"), "not in the manifest"),
            (lambda s, p: s.remove([p(f"build/{CPU}/metadata.json")]), "is gone"),
            (lambda s, p: s.remove([PLACE.ref]), "is not there"),
            (lambda s, p: s.write(PLACE.ref, b"b" * 40), "not written by"),
            (lambda s, p: s.write(p(MANIFEST), b"{}"), "not a manifest"),
        ],
        ids=["changed", "added", "gone", "no ref", "ref", "manifest"],
    )
    def test_faults(
        self,
        place: Room,
        tmp_path: Path,
        change: Callable[[object, Callable[[str], str]], None],
        words: str,
    ) -> None:
        place.publish(layout(tmp_path, ONE))
        top = PLACE.snapshot(place.snapshot())
        change(place.store, lambda path: f"{top}/{path}")
        (fault,) = faults(place)
        assert words in fault

    def test_a_link_that_leads_elsewhere(self, tmp_path: Path) -> None:
        found = room("folder", tmp_path)
        found.publish(layout(tmp_path, ONE))
        found.store.point(PLACE.link, "../../elsewhere")
        (fault,) = faults(found)
        assert "leads to another snapshot" in fault


class TestManifest:
    def text(self, tmp_path: Path) -> dict[str, object]:
        found = room("folder", tmp_path)
        found.publish(layout(tmp_path, ONE))
        kept = read_version(found.store, PLACE)
        assert kept is not None
        document: dict[str, object] = json.loads(kept.manifest.to_json_text())
        assert parse_manifest(json.dumps(document).encode(), "m") == kept.manifest
        return document

    @pytest.mark.parametrize("path", ["/etc/passwd", "../x", "build/../../x", "", MANIFEST])
    def test_paths_stay_inside(self, tmp_path: Path, path: str) -> None:
        document = self.text(tmp_path)
        document["files"] = {path: {"size": 1, "sha256": "0" * 64, "git": "0" * 40}}
        with pytest.raises(ManifestError):
            parse_manifest(json.dumps(document).encode(), "m")

    def test_a_manifest_names_its_own_files(self, tmp_path: Path) -> None:
        document = self.text(tmp_path)
        document["branch"] = "v2"
        with pytest.raises(ManifestError, match="was changed"):
            parse_manifest(json.dumps(document).encode(), "m")


def _unlocked(found: Room, act: Callable[[], object]) -> None:
    """As on a store without locks, or on another machine."""
    from contextlib import nullcontext

    real = found.store.alone
    found.store.alone = lambda _: nullcontext()  # type: ignore[method-assign]
    try:
        act()
    finally:
        found.store.alone = real  # type: ignore[method-assign]
