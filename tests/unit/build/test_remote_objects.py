"""Objects of a second machine come from the shared cache, under a launcher that knows of none."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbuild.build import launcher
from kbuild.build.remote_objects import parse_slot, shared_objects
from kbuild.build.unit_log import read_log
from kbuild.errors import DamagedFileError
from kbuild.runtime.budget import Budget, Run
from kbuild.runtime.cache_entries import seal, unseal
from kbuild.runtime.remote_cache import RemoteCache
from tests.support.remote_caches import DictStore

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler"),
]
SOURCE = """\
#include "api.h"
#include "torch/api.h"
#warning "so it is"
int answer() { return ANSWER; }
"""


@dataclass
class Machine:
    """A project with one unit, in a folder of its own, with a cache of its own."""

    folder: Path
    remote: RemoteCache

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "a.cpp").write_text(SOURCE)
        for torch in ("torch13", "torch14"):
            headers = self.folder / torch / "torch"
            headers.mkdir(parents=True)
            (headers / "version.h").write_text(f"// {torch}\n")
            (headers / "api.h").write_text("// the same\n")
        self.write_header("42")
        (self.folder / "run").mkdir()
        self.run = Run(
            Budget(1, 8000), self.folder / "run", self.folder / "cache", None, remote=self.remote
        )

    def write_header(self, value: str) -> None:
        (self.folder / "api.h").write_text(f"#define ANSWER {value}\n")
        time.sleep(0.02)  # what changes while it is compiled is not cached

    def command(self, torch: str) -> list[str]:
        place = self.folder
        return [
            *(sys.executable, "-I", "-S", launcher.__file__, "CXX", "c++", f"-I{place}"),
            *(f"-isystem{place}/{torch}", f"-ffile-prefix-map={place}=/kernel"),
            *(f"-ffile-prefix-map={place}/{torch}=/torch", "-MD", "-MT", f"{torch}.o"),
            *("-MF", f"{place}/{torch}.d", "-o", f"{place}/{torch}.o", "-c", f"{place}/a.cpp"),
        ]

    def environ(self, torch: str) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", **self.run.environment(torch, self.folder)}

    def launch(self, torch: str) -> str:
        """The compiler's messages."""
        done = subprocess.run(  # noqa: TID251
            self.command(torch),
            cwd=self.folder,
            env=self.environ(torch),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stderr

    def shared(self, torch: str) -> AbstractContextManager[None]:
        """What surrounds ninja."""
        command = shlex.join(self.command(torch))
        database = json.dumps([{"directory": str(self.folder), "command": command, "file": "a"}])
        return shared_objects(self.run, torch, self.environ(torch), lambda: database)

    def build(self, torch: str = "torch13") -> tuple[str, bytes, str]:
        """What the cache came to, the object, and the compiler's messages."""
        (self.folder / f"{torch}.o").unlink(missing_ok=True)
        self.run.log.unlink(missing_ok=True)
        with self.shared(torch):
            messages = self.launch(torch)
        self.remote.finish()
        (unit,) = read_log(self.run.log).units
        return unit.cache, (self.folder / f"{torch}.o").read_bytes(), messages


@pytest.fixture
def store() -> DictStore:
    return DictStore()


@pytest.fixture
def machine(tmp_path: Path, store: DictStore) -> Callable[..., Machine]:
    return lambda name, **options: Machine(tmp_path / name, store.cache(**options))


def test_the_second_machine_compiles_nothing(
    machine: Callable[..., Machine], store: DictStore, tmp_path: Path
) -> None:
    outcome, compiled, messages = machine("a").build()
    assert outcome == "miss"
    second = machine("b")
    assert second.build() == ("hit", compiled, messages.replace(f"{tmp_path}/a", f"{tmp_path}/b"))
    assert second.remote.statistics.hits == 1
    assert second.remote.statistics.saved > 0
    assert not any(str(tmp_path).encode() in unsealed for unsealed in contents(store).values())


def contents(store: DictStore) -> dict[str, bytes]:
    return {
        path: unseal(path.removeprefix("kbuild-1/"), data) for path, data in store.files.items()
    }


def test_another_header_is_another_object_beside_the_first(
    machine: Callable[..., Machine], store: DictStore
) -> None:
    first = machine("a")
    first.build()
    first.write_header("43")
    assert first.build()[0] == "miss"
    assert len([path for path in store.files if "/slots/" in path]) == 1
    second = machine("b")
    assert second.build()[0] == "hit"
    second.write_header("43")
    assert second.build()[0] == "hit"
    second.write_header("44")
    assert second.build()[0] == "miss"


def test_what_another_variant_compiled_meanwhile_is_named_as_well(
    machine: Callable[..., Machine], store: DictStore
) -> None:
    first = machine("a")
    with first.shared("torch14"):
        first.build("torch13")
        first.launch("torch14")  # a hit, of an object that the shared cache did not have
    first.remote.finish()
    assert len([path for path in store.files if "/slots/" in path]) == 2
    assert len([path for path in store.files if "/objects/" in path]) == 1
    assert machine("b").build("torch14")[0] == "hit"


def test_variants_that_store_at_once_keep_each_others_records(
    machine: Callable[..., Machine], store: DictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machine("a")
    put, pending = first.remote.put, []
    monkeypatch.setattr(first.remote, "put", pending.append)
    for value in ("42", "43"):
        first.write_header(value)
        first.build()
    store.delay = 0.1  # both would read the slot before one writes it
    for files in pending:
        put(files)
    first.remote.finish()
    (path,) = (path for path in store.files if "/slots/" in path)
    assert len(parse_slot(unseal(path.removeprefix("kbuild-1/"), store.files[path]))) == 2


@pytest.mark.parametrize("kind", ["slots", "objects"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda name, data: data[: len(data) // 2],
        lambda name, data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda name, data: b"",
        lambda name, data: seal(name, b"{}"),
        lambda name, data: seal(name, b"[{}]"),
        lambda name, data: seal(name, unseal(name, data).replace(b"kbuild-object", b"another")),
        lambda name, data: seal(name, unseal(name, data)[:-1]),
    ],
)
def test_what_is_damaged_is_compiled(
    machine: Callable[..., Machine],
    store: DictStore,
    kind: str,
    damage: Callable[[str, bytes], bytes],
) -> None:
    _, compiled, _ = machine("a").build()
    (path,) = (path for path in store.files if f"/{kind}/" in path)
    name = path.removeprefix("kbuild-1/")
    changed = damage(name, store.files[path])
    is_same = unsealed(name, changed) == unsealed(name, store.files[path])
    store.files[path] = changed
    assert machine("b").build()[:2] == ("hit" if is_same else "miss", compiled)
    assert machine("c").build()[:2] == ("hit", compiled)  # it was stored again


def unsealed(name: str, data: bytes) -> bytes | None:
    try:
        return unseal(name, data)
    except DamagedFileError:
        return None


def test_a_forged_object_is_refused(machine: Callable[..., Machine], store: DictStore) -> None:
    _, compiled, _ = machine("a").build()
    (path,) = (path for path in store.files if "/objects/" in path)
    name = path.removeprefix("kbuild-1/")
    forged = unseal(name, store.files[path]).replace(b"ELF", b"EVI")
    store.files[path] = seal(name, forged)
    assert machine("b").build()[:2] == ("miss", compiled)


def test_a_reader_takes_and_gives_nothing(
    machine: Callable[..., Machine], store: DictStore
) -> None:
    assert machine("a", writes=False).build()[0] == "miss"
    assert not store.files


def test_a_store_that_is_down_changes_nothing(
    machine: Callable[..., Machine], store: DictStore
) -> None:
    store.is_down = True
    warnings: list[str] = []
    assert machine("a", warn=warnings.append).build()[0] == "miss"
    assert len(warnings) <= 2


def test_what_is_no_slot() -> None:
    assert parse_slot(None) == ()
    for data in (b"", b"{", b"[1]", b'[{"key": 1}]', b'{"a": 1}'):
        with pytest.raises(DamagedFileError):
            parse_slot(data)
