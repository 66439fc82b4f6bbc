"""The parts of the link environment, without a compiler where none is needed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kbuild.system.processes import ProcessResult
from kbuild.system.store import open_store
from kbuild.toolchains.manylinux.compiler import DEFAULT_POLICY, LOADERS, policy_interface
from kbuild.toolchains.manylinux.environment import (
    link_environment,
    manylinux_linking,
    newer_members,
    undefine_symbols,
    write_archive,
)

DEBIAN = (
    "#define __GLIBC__ 2\n#define __GLIBC_MINOR__ 36\n#define __GNUC__ 12\n#define __x86_64__ 1\n"
)


class Compiler:
    """Answers as a compiler would; what it is asked to build it does not build."""

    def __init__(self, macros: str = DEBIAN, libraries: tuple[Path, ...] = ()) -> None:
        self.macros = macros
        self.libraries = {path.name: path for path in libraries}
        self.asked: list[tuple[str, ...]] = []

    def run(self, argv, **_) -> ProcessResult:
        self.asked.append(tuple(argv))
        name = argv[1].removeprefix("-print-file-name=")
        if name != argv[1]:
            return ProcessResult(tuple(argv), 0, f"{self.libraries.get(name, name)}\n", 0.0)
        return ProcessResult(tuple(argv), 0, self.macros, 0.0)


def gcc_12(folder: Path) -> Compiler:
    """A compiler without a static C++ library; its start files tell its release, as with clang."""
    start = folder / "gcc" / "12" / "crtbegin.o"
    start.parent.mkdir(parents=True)
    start.write_bytes(b"")
    return Compiler(libraries=(start,))


class Making(Compiler):
    """Writes an empty file for everything that it is asked to build."""

    def run(self, argv, *, cwd: Path | None = None, **how) -> ProcessResult:
        if "-o" in argv:
            Path(argv[argv.index("-o") + 1]).write_bytes(b"")
        if "-c" in argv and cwd is not None:
            for source in (Path(part) for part in argv if part.endswith(".cpp")):
                (cwd / f"{source.stem}.o").write_bytes(b"")
        return super().run(argv, **how)


@pytest.mark.parametrize("cpu", LOADERS)
def test_the_lists_know_old_and_lack_new(cpu: str) -> None:
    lists = policy_interface(DEFAULT_POLICY, cpu)
    assert lists.loader in lists.libraries
    for library, name in (
        ("libc.so.6", "memcpy"),
        ("libpthread.so.0", "pthread_create"),
        ("libm.so.6", "pow"),
        ("libgcc_s.so.1", "_Unwind_Resume"),
        ("libstdc++.so.6", "_ZSt4cout"),
        ("libstdc++.so.6", "__cxa_throw"),
        (lists.loader, "__tls_get_addr"),
    ):
        assert name in {symbol.name for symbol in lists.libraries[library]}, name
    newer = ("stat", "arc4random", "__libc_single_threaded", "_ZSt21ios_base_library_initv")
    assert not lists.names & set(newer)


def object_file(*symbols: tuple[str, int]) -> bytes:
    """An ELF-64 object with nothing but global symbols: name and section (0 is undefined)."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _ in symbols)
    table = bytes(24)
    for name, section in symbols:
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        table += struct.pack("<IBBHQQ", at, 0x12, 0, section, 16, 4)
    head = bytearray(b"\x7fELF\x02\x01\x01".ljust(64, b"\0"))
    struct.pack_into("<Q", head, 0x28, 64 + len(table) + len(names))
    struct.pack_into("<H", head, 0x3C, 3)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, 64, len(table), 2, 1, 8, 24)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64 + len(table), len(names), 0, 0, 1, 0)
    return bytes(head) + table + names + sections


def test_what_is_provided_becomes_undefined() -> None:
    data = object_file(("new", 1), ("old", 1), ("elsewhere", 0))
    member = undefine_symbols("it.o", data, {"old", "elsewhere"})
    assert member.defines == ("new",)
    assert undefine_symbols("it.o", member.data, ()).defines == ("new",)
    assert undefine_symbols("it.o", data, ()).defines == ("new", "old")


def test_only_members_with_something_new_stay() -> None:
    given = [
        undefine_symbols(name, object_file(*symbols), ())
        for name, symbols in {
            "a-name-longer-than-sixteen-bytes.o": [("new", 1), ("old", 1)],
            "old.o": [("old", 1)],
            "compiler.o": [("DW.ref.__gxx_personality_v0", 1), ("old", 1)],
        }.items()
    ]
    kept = list(newer_members(write_archive(given), {"old"}))
    assert [(m.name, m.defines) for m in kept] == [("a-name-longer-than-sixteen-bytes.o", ("new",))]


def test_an_environment_is_an_entry_of_the_store(tmp_path: Path) -> None:
    library = tmp_path / "libstdc++.a"
    library.write_bytes(b"!<arch>\n")
    links = link_environment(
        DEFAULT_POLICY, "x86_64", Path("/c++"), tmp_path, Making(DEBIAN, (library,))
    )
    (entry,) = open_store(tmp_path).entries()
    assert (entry.root, entry.differences()) == (links.folder, ())
    assert entry.name.startswith("manylinux_2_28-x86_64-")
    assert {"libc.so.6", "libkbuild_compat.a"} <= set(entry.members)
    assert not [name for name in entry.members if name.endswith((".s", ".map", ".o"))]
    assert open_store(tmp_path).prune(0) == (entry.name,)


def test_portability_is_a_note_where_it_cannot_be(tmp_path: Path) -> None:
    found = manylinux_linking("x86_64-linux", Path("/c++"), tmp_path, gcc_12(tmp_path))
    assert (found.promised, found.cache_entries) == (False, ())
    assert found.notes[0].startswith("not linked for manylinux_2_28: `/c++` has no libstdc++.a")
    assert "apt install libstdc++-12-dev" in found.notes[0]
