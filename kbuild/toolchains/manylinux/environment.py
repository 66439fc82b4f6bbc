"""A folder to link against, so that what a new compiler makes runs on a policy's old systems.

It holds stubs of the policy's libraries and one static library of what they lack: functions that
newer headers and a newer libstdc++ ask for (`compat/`), and the newer part of the host's
libstdc++. libstdc++ itself stays dynamic, so exceptions cross into Torch.
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.scratch import within
from kbuild.store import Recipe, store_of
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.manylinux.archive import Member, newer_members, without, write_archive
from kbuild.toolchains.manylinux.compiler import LinkedCompiler, look_at
from kbuild.toolchains.manylinux.stubs import NONSHARED, StubWriter
from kbuild.toolchains.manylinux.symbols import Interface, data_file, interface

COMPAT = "libkbuild_compat.a"
_SOURCES = Path(__file__).with_name("compat")
_CODE = ("archive.py", "environment.py", "stubs.py")
SYSTEM_LIBRARIES = (
    "-Wl,--push-state,--as-needed -lstdc++ -lkbuild_compat -lm -lgcc_s -lgcc "
    "-lpthread -ldl -lrt -lc -lgcc_s -lgcc -Wl,--pop-state"
)
"""What a link takes from the environment; libgomp and libatomic stay the compiler's."""
# CMake's own rule, with `options` and `system` added; the first folder with a library is its.
_RULE = (
    "<CMAKE_CXX_COMPILER> {options} <CMAKE_SHARED_LIBRARY_CXX_FLAGS> <LANGUAGE_COMPILE_FLAGS> "
    "<LINK_FLAGS> <SONAME_FLAG><TARGET_SONAME> -o <TARGET> <OBJECTS> "
    "{system} <LINK_LIBRARIES> {system}"
)
_FLAGS = ("-std=gnu++14", "-O2", "-fPIC", "-g0", "-c")


@dataclass(frozen=True)
class LinkEnvironment:
    """A made folder, and how to use it."""

    policy: str
    folder: Path

    @property
    def options(self) -> str:
        """For the link line of a g++ or clang++ driver, before other `-L`, as a shell reads it.

        A member of the archive brings more functions than are asked for; unused ones are dropped.
        """
        folder = shlex.quote(str(self.folder))
        return f"-nodefaultlibs -L{folder} -Wl,--exclude-libs,{COMPAT} -Wl,--gc-sections"

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
        """For the record of the toolchain."""
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
    target = interface(policy, cpu)
    compiler = look_at(cxx, FactCache(cache), runner)
    if compiler.cpu != cpu:
        raise ToolchainError(
            f"`{cxx}` does not compile for {cpu}", hint="choose a compiler for it with CXX"
        )
    made = store_of(cache).ensure(
        _recipe(policy, cpu, compiler), _Maker(target, compiler, runner).make
    )
    return LinkEnvironment(policy, made.root)


def _recipe(policy: str, cpu: str, compiler: LinkedCompiler) -> Recipe:
    inputs = {"compiler": compiler.fingerprint, "kbuild": _own_digest(policy, cpu)}
    return Recipe(policy, cpu, inputs)


@lru_cache(maxsize=4)
def _own_digest(policy: str, cpu: str) -> str:
    """Of everything in this package that an environment is made from."""
    code = [Path(__file__).with_name(name) for name in _CODE]
    files = [data_file(policy, cpu), *code, *_compat_sources()]
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _compat_sources() -> list[Path]:
    return sorted(_SOURCES.glob("*.cpp"))


@dataclass(frozen=True)
class _Maker:
    interface: Interface
    compiler: LinkedCompiler
    runner: Runner

    def make(self, root: Path) -> Mapping[str, Any]:
        """Fill the folder; see `kbuild.store.Make`."""
        with tempfile.TemporaryDirectory(dir=root.parent) as scratch:
            self._fill(root, Path(scratch))
        return {"compiler": str(self.compiler.program), "sources": []}

    def _fill(self, folder: Path, scratch: Path) -> None:
        StubWriter(self.interface, self.compiler.program, self.runner).write(folder, scratch)
        nonshared = self.compiler.nonshared
        content = nonshared.read_bytes() if nonshared else write_archive(())
        (folder / NONSHARED).write_bytes(content)
        (folder / COMPAT).write_bytes(write_archive((*self._compat(scratch), *self._newer())))

    def _compat(self, scratch: Path) -> tuple[Member, ...]:
        """First in the archive: what they define is not taken from libstdc++."""
        sources = _compat_sources()
        command = (str(self.compiler.program), *_FLAGS, *map(str, sources))
        done = self.runner.run(command, cwd=scratch, env=within(scratch))
        if not done.ok:
            raise ToolchainError(f"the compatibility library fails to compile: {done.output}")
        objects = [scratch / f"{source.stem}.o" for source in sources]
        return tuple(without(file.name, file.read_bytes(), ()) for file in objects)

    def _newer(self) -> tuple[Member, ...]:
        archive = self.compiler.libstdcxx.read_bytes()
        return tuple(newer_members(archive, self.interface.names))
