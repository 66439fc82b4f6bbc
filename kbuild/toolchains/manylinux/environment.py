"""A folder to link against, so that a new compiler's output runs on a policy's old systems.

It holds stubs of the policy's libraries and one static library with what they lack: functions that
newer headers and a newer libstdc++ need (`compat/`), and the newer part of the host's libstdc++.
libstdc++ itself stays dynamic, so exceptions cross into Torch.

Red Hat's toolsets ship that newer part as `libstdc++_nonshared.a`; here it is made from the host's
`libstdc++.a`. In every member, a symbol that the policy's libraries export becomes undefined, so
that there is one copy of it in a process: locale ids, `std::cout`, the empty string and type
information must not exist twice. Members that then define nothing are left out.

Formats: ar(5) as GNU writes it; System V ABI, ELF-64 object files, symbol table.
"""

from __future__ import annotations

import hashlib
import shlex
import struct
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kbuild.project.variant import System
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.store import Recipe, open_store
from kbuild.system.temporary import environment_with_tmpdir
from kbuild.system.untrusted import reading
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.manylinux.compiler import (
    DEFAULT_POLICY,
    LIBC_NONSHARED,
    LinkedCompiler,
    PolicyInterface,
    PolicyStubWriter,
    glibc_release,
    inspect_link_compiler,
    is_old_enough,
    policy_interface,
    symbols_file,
)

_MAGIC = b"!<arch>\n"
_HEADER = 60
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _UNDEFINED, _GLOBAL, _TLS = 2, 0, 1 << 4, 6
_MADE_BY_THE_COMPILER = "DW.ref."


@dataclass(frozen=True)
class ArchiveMember:
    """An object file of an archive."""

    name: str
    data: bytes
    defines: tuple[str, ...]
    """Names of the global symbols that the member defines."""


def newer_members(archive: bytes, provided: Collection[str]) -> Iterator[ArchiveMember]:
    """The members of `archive` that define what is not provided, without what is.

    Raises:
        ToolchainError: the archive is of a kind that cannot be taken apart.
        DamagedFileError: it, or an object in it, is damaged.
    """
    with reading("libstdc++.a", "the compiler's library"):
        for name, data in _members(archive):
            member = undefine_symbols(name, data, provided)
            if any(not symbol.startswith(_MADE_BY_THE_COMPILER) for symbol in member.defines):
                yield member


def undefine_symbols(name: str, data: bytes, provided: Collection[str]) -> ArchiveMember:
    """The object file with the provided symbols undefined."""
    changed, defines = bytearray(data), []
    for offset, symbol in _globals(data):
        _, info, _, section, _, _ = _SYMBOL.unpack_from(data, offset)
        if section == _UNDEFINED:
            continue
        if symbol not in provided:
            defines.append(symbol)
            continue
        (own_name,) = struct.unpack_from("<I", data, offset)
        # A thread-local symbol has to stay one: the linker refuses to bind it to another kind.
        kind = info & 0xF if info & 0xF == _TLS else 0
        _SYMBOL.pack_into(changed, offset, own_name, _GLOBAL | kind, 0, _UNDEFINED, 0, 0)
    return ArchiveMember(name, bytes(changed), tuple(defines))


def _globals(data: bytes) -> Iterator[tuple[int, str]]:
    """Offset and name of each global symbol's entry."""
    if data[:6] != b"\x7fELF\x02\x01":
        return
    (start,) = struct.unpack_from("<Q", data, 0x28)
    (count,) = struct.unpack_from("<H", data, 0x3C)
    if count == 0:
        (count,) = struct.unpack_from("<Q", data, start + 0x20)  # more than 65279 sections
    sections = [_SECTION.unpack_from(data, start + i * _SECTION.size) for i in range(count)]
    for _, kind, _, _, offset, size, link, first, _, _ in sections:
        if kind == _SYMTAB:
            names = sections[link][4]
            for place in range(offset + first * _SYMBOL.size, offset + size, _SYMBOL.size):
                begin = names + struct.unpack_from("<I", data, place)[0]
                yield place, data[begin : data.index(b"\0", begin)].decode("latin-1")


def _members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    if not archive.startswith(_MAGIC):
        raise ToolchainError("the compiler's libstdc++.a is not a plain archive")
    offset, names = len(_MAGIC), b""
    while offset + _HEADER <= len(archive):
        header = archive[offset : offset + _HEADER]
        name, size = header[:16].rstrip(), int(header[48:58])
        if size < 0:
            raise ValueError("a member has no size")
        data = archive[offset + _HEADER : offset + _HEADER + size]
        # Members begin at even offsets.
        offset += _HEADER + size + size % 2
        if name == b"//":
            names = data
        elif name not in (b"/", b"/SYM64/"):
            yield _member_name(name, names), data


def _member_name(name: bytes, names: bytes) -> str:
    if name.startswith(b"/"):
        begin = int(name[1:])
        name = names[begin : names.index(b"\n", begin)]
    return name.decode().rstrip("/")


def write_archive(members: Iterable[ArchiveMember]) -> bytes:
    """An archive with an index, the same bytes for the same members."""
    listed = [member for member in members if member.defines]
    symbols = b"".join(f"{s}\0".encode("latin-1") for m in listed for s in m.defines)
    count = sum(len(member.defines) for member in listed)
    names = b"".join(f"{member.name}/\n".encode() for member in listed)
    # The first member follows the index and the list of names.
    at = len(_MAGIC) + 2 * _HEADER + _even(4 + 4 * count + len(symbols)) + _even(len(names))
    # The index is big-endian on all machines.
    index, body, name_at = bytearray(struct.pack(">I", count)), bytearray(), 0
    for member in listed:
        index += struct.pack(">I", at + len(body)) * len(member.defines)
        body += _entry(f"/{name_at}", member.data)
        name_at += len(member.name) + 2
    return _MAGIC + _entry("/", bytes(index) + symbols) + _entry("//", names) + bytes(body)


def _entry(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)


def _even(size: int) -> int:
    return size + size % 2


COMPAT_LIBRARY = "libkbuild_compat.a"
_SOURCES = Path(__file__).with_name("compat")
_CODE = ("environment.py", "compiler.py")
SYSTEM_LIBRARIES = (
    "-Wl,--push-state,--as-needed -lstdc++ -lkbuild_compat -lm -lgcc_s -lgcc "
    "-lpthread -ldl -lrt -lc -lgcc_s -lgcc -Wl,--pop-state"
)
"""Flags of a link with the environment; libgomp and libatomic stay the compiler's."""
# CMake's own rule, with `options` and `system` added; the first folder with a library is its.
_RULE = (
    "<CMAKE_CXX_COMPILER> {options} <CMAKE_SHARED_LIBRARY_CXX_FLAGS> <LANGUAGE_COMPILE_FLAGS> "
    "<LINK_FLAGS> <SONAME_FLAG><TARGET_SONAME> -o <TARGET> <OBJECTS> "
    "{system} <LINK_LIBRARIES> {system}"
)
_FLAGS = ("-std=gnu++14", "-O2", "-fPIC", "-g0", "-c")


@dataclass(frozen=True)
class LinkEnvironment:
    """A link environment in a folder, and the options to use it."""

    policy: str
    folder: Path

    @property
    def options(self) -> str:
        """The options for the link line of g++ or clang++, before other `-L`, quoted for a shell.

        A member of the archive brings more functions than are asked for; unused ones are dropped.
        """
        folder = shlex.quote(str(self.folder))
        return f"-nodefaultlibs -L{folder} -Wl,--exclude-libs,{COMPAT_LIBRARY} -Wl,--gc-sections"

    @property
    def cache_entries(self) -> tuple[tuple[str, str], ...]:
        """CMake cache entries: the link rules. Every extension is linked as C++.

        The system's libraries come before the project's as well as after them: Torch's libraries
        export parts of their own libstdc++, which another release of Torch need not do.
        """
        rule = _RULE.format(options=self.options, system=SYSTEM_LIBRARIES)
        return (("CMAKE_CXX_CREATE_SHARED_LIBRARY", rule), ("CMAKE_CXX_CREATE_SHARED_MODULE", rule))

    @property
    def versions(self) -> tuple[tuple[str, str], ...]:
        """The versions for the record of the toolchain."""
        return (("manylinux", self.policy),)


def link_environment(
    policy: str, cpu: str, cxx: Path, cache: Path, runner: Runner
) -> LinkEnvironment:
    """The environment of this policy for this compiler, made when it is not there yet.

    Args:
        policy: `manylinux_2_28`.
        cpu: `x86_64` or `aarch64`, which the compiler must compile for.
        cxx: a g++, or a clang++ that uses libstdc++.
        cache: kbuild's cache folder.
        runner: starts the compiler.

    Raises:
        ToolchainError: no stubs for this policy and CPU, or the compiler cannot serve them.
    """
    target = policy_interface(policy, cpu)
    compiler = inspect_link_compiler(cxx, FactCache(cache), runner)
    if compiler.cpu != cpu:
        raise ToolchainError(
            f"`{cxx}` does not compile for {cpu}", hint="choose a compiler for it with CXX"
        )
    inputs = {"compiler": compiler.fingerprint, "kbuild": _own_digest(policy, cpu)}

    def make(root: Path) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(dir=root.parent) as scratch:
            _fill_environment(root, Path(scratch), target, compiler, runner)
        return {"compiler": str(compiler.program), "sources": []}

    return LinkEnvironment(policy, open_store(cache).ensure(Recipe(policy, cpu, inputs), make).root)


@lru_cache(maxsize=4)
def _own_digest(policy: str, cpu: str) -> str:
    """A digest of everything in this package that an environment is made from."""
    code = [Path(__file__).with_name(name) for name in _CODE]
    files = [symbols_file(policy, cpu), *code, *sorted(_SOURCES.glob("*.cpp"))]
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _fill_environment(
    folder: Path,
    scratch: Path,
    interface: PolicyInterface,
    compiler: LinkedCompiler,
    runner: Runner,
) -> None:
    PolicyStubWriter(interface, compiler.program, runner).write(folder, scratch)
    content = compiler.nonshared.read_bytes() if compiler.nonshared else write_archive(())
    (folder / LIBC_NONSHARED).write_bytes(content)
    # First in the archive: what they define is not taken from libstdc++.
    sources = sorted(_SOURCES.glob("*.cpp"))
    command = (str(compiler.program), *_FLAGS, *map(str, sources))
    done = runner.run(command, cwd=scratch, env=environment_with_tmpdir(scratch))
    if not done.ok:
        raise ToolchainError(f"the compatibility library fails to compile: {done.output}")
    objects = [scratch / f"{source.stem}.o" for source in sources]
    compat = tuple(undefine_symbols(file.name, file.read_bytes(), ()) for file in objects)
    newer = tuple(newer_members(compiler.libstdcxx.read_bytes(), interface.names))
    (folder / COMPAT_LIBRARY).write_bytes(write_archive((*compat, *newer)))


@dataclass(frozen=True)
class ManylinuxLinking:
    """Linker settings of a toolchain for the sake of older systems."""

    promised: bool = False
    """True when a result that breaks the policy is kbuild's fault or the project's."""
    cache_entries: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks on why the result is not promised to be portable, where it could be."""


def manylinux_linking(
    system: str | None, cxx: Path, cache: Path, runner: Runner
) -> ManylinuxLinking:
    """The link environment where the host is newer than the policy, or why there is none."""
    policy = DEFAULT_POLICY
    target = System.parse(system) if system else None
    if target is None or target.os != "linux":
        return ManylinuxLinking()
    if is_old_enough(glibc_release(cxx, FactCache(cache), runner), policy):
        return ManylinuxLinking()
    try:
        links = link_environment(policy, target.cpu, cxx, cache, runner)
    except ToolchainError as error:
        mend = f"; to fix it, {error.hint}" if error.hint else ""
        return ManylinuxLinking(notes=(f"not linked for {policy}: {error.message}{mend}",))
    return ManylinuxLinking(True, links.cache_entries, links.versions)
