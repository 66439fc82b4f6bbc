"""Readers of archives, and of what units of a build and git write about files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fuzzing.common import put


def wheel(data: bytes, folder: Path) -> object:
    from kbuild.toolchains.wheels.lock import LockedWheel
    from kbuild.toolchains.wheels.wheel_file import Wheel

    name = "demo-1.0-py3-none-any.whl"
    wheel = Wheel(LockedWheel(name, "0" * 64, len(data)), put(folder, name, data))
    try:
        target = folder / "unpacked"
        target.mkdir()
        wheel.unpack(target, lambda member: None if member.endswith("RECORD") else member)
    finally:
        wheel.close()
    return _refuse_escapes(folder, target)


@cache
def wheel_seeds() -> Sequence[bytes]:
    from tests.support.wheel_index import make_wheel

    files = {"demo/__init__.py": b"x = 1\n" * 40, "demo/lib/liba.so": b"\0" * 300}
    with tempfile.TemporaryDirectory() as name:
        return [make_wheel(Path(name), "demo", "1.0", files).read_bytes()]


def _refuse_escapes(folder: Path, target: Path) -> object:
    """Nothing of an archive may lie beside the folder that it is unpacked into."""
    beside = [path for path in folder.iterdir() if path != target][1:]  # the archive is there
    out = [
        path
        for path in target.rglob("*")
        if path.is_symlink() and not path.resolve().is_relative_to(target.resolve())
    ]
    if beside or out:
        raise AssertionError(f"an archive wrote outside of its folder: {[*beside, *out]}")
    return sum(1 for _ in target.rglob("*"))


def object_inputs(data: bytes, folder: Path) -> object:
    """What lies beside an object: damaged, the object is compiled again."""
    from kbuild.build.ninja import delete_stale_objects, read_object_inputs

    name = "CMakeFiles/a.dir/a.cpp.o"
    put(folder, name, b"object")
    put(folder, f"{name}.inputs", data.replace(b"ROOT", os.fsencode(folder)))
    found = read_object_inputs(folder, [name])
    found.disagreeing(folder)
    delete_stale_objects(folder)
    return sorted(found.below(folder, folder / "without"))


def cache_record(data: bytes, _folder: Path) -> object:
    from kbuild.build.unit.cache import _record_rows

    return _record_rows(data)


def ledger(data: bytes, folder: Path) -> object:
    """Who holds how much memory, as another unit left it."""
    from kbuild.system.memory_governor import MemoryReservations

    file = put(folder, "ledger", data.replace(b"PID", str(os.getpid()).encode()))
    ledger = MemoryReservations(str(file), 100, pid=1)
    ledger.take(1, lambda: True)
    state = ledger.must_give_way(1)
    ledger.release()
    return state
