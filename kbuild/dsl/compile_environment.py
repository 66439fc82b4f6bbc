"""The environment in which a kernel's units are compiled: pins, assemblers, worker, cache keys."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from kbuild.dsl.environment import CXX, HIP, NVCC, TOOLKIT, DslEnvironments
from kbuild.dsl.workers import WorkerKind
from kbuild.ops.language import Language, split_flavour
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.code_digest import code_digest
from kbuild.system.errors import BuildError, ToolchainError
from kbuild.system.files import replace_atomically
from kbuild.system.processes import canonical_interpreter
from kbuild.system.sourcetree import SourceTree

_FOLDER = Path(__file__).parent
ANSWER_READERS = (
    _FOLDER / "worker_client.py",
    _FOLDER / "image_cache.py",
    _FOLDER.parent / "ops/image.py",
)
"""Modules that read a worker's answer before it is stored; they count in cache keys."""


class CompilableKernel(Protocol):
    """The attributes of a planned kernel that its compilation needs."""

    @property
    def name(self) -> str:
        """Name of the `[kernel.*]` section."""

    @property
    def language(self) -> str:
        """A name of `LANGUAGES`."""

    @property
    def toolchain(self) -> tuple[str, ...]:
        """Exact pins of the DSL's distributions, such as `triton==3.6.0`."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Paths in the project, the one with the functions first."""

    @property
    def flavour(self) -> str:
        """`cuda12`, `cuda13`, `rocm` or `cpu`; see `kbuild.ops.language.split_flavour`."""


@dataclass(frozen=True)
class SourceSnapshot:
    """The sources of a kernel as they were when they were read."""

    texts: tuple[tuple[str, bytes], ...]

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Path -> SHA-256."""
        return {path: hashlib.sha256(text).hexdigest() for path, text in self.texts}

    @property
    def key(self) -> str:
        """Digest of the paths and their content."""
        return json_digest(self.digests)

    def write(self, folder: Path) -> Path:
        """Write the sources to a folder below `folder`, named after their key; return it."""
        target = folder / self.key[:16]
        for path, text in self.texts:
            file = target / path
            if not file.is_file():
                file.parent.mkdir(parents=True, exist_ok=True)
                # Threads that ask workers about the same sources write them at the same time.
                replace_atomically(file, text)
        return target


def read_sources(kernel: CompilableKernel, root: Path) -> SourceSnapshot:
    """Read the sources.

    Raises:
        BuildError: a source does not exist.
        ConfigError: a source is not a file of the project.
    """
    texts, tree = [], SourceTree(root)
    for path in kernel.sources:
        try:
            texts.append((path, tree.read_bytes(path)))
        except OSError as error:
            what = f"kernel.{kernel.name}.src: `{path}` cannot be read: {error.strerror}"
            raise BuildError(what) from None
    return SourceSnapshot(tuple(texts))


def pinned_versions(pins: Sequence[str]) -> dict[str, str]:
    """Versions by distribution name, from exact pins."""
    return {name: version for name, _, version in (pin.partition("==") for pin in pins)}


def json_digest(value: Any) -> str:
    """SHA-256 of a JSON value, as hexadecimal text."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# Code that runs in or reads from a worker decides what is cached, so that a change of it is a miss.
def _worker_digest(worker: str) -> str:
    folder = _FOLDER / "worker"
    worker_files = sorted((*folder.rglob("*.py"), *folder.glob("*.txt")))
    files = [*worker_files, *ANSWER_READERS]
    # A plug-in's worker imports modules beside it.
    files += sorted(Path(worker).parent.glob("*.py")) if worker.endswith(".py") else []
    return code_digest(*files)[:16]


_WORKER_PROGRAM = _FOLDER / "worker" / "__main__.py"
# The fixed hash seed gives sets the same order in each process, which compilers may depend on.
_VARIABLES = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
"""Environment variables of a worker, except its home and `Language.variables`."""
_ASSEMBLER_LABELS = {TOOLKIT.rstrip("-"): "nvcc", HIP: "clang", NVCC: "ptxas"}
"""Program -> its name in an image's record, if that differs."""
Assembler = tuple[Path, str]


@dataclass(frozen=True)
class CompileEnvironment:
    """Compiles units of one language, with one set of pins and one flavour of machine code."""

    language: Language
    pins: tuple[str, ...]
    flavour: str
    """Kind of machine code."""
    host: str
    """System of the images' host code if it is not this machine's; else empty."""
    root: Path
    """Folder with the installed distributions."""
    assemblers: Mapping[str, Assembler]
    """Name -> path and version."""

    def kind(self, request: Mapping[str, Any]) -> WorkerKind:
        """Return the kind of worker that can answer the request."""
        worker = self.language.worker
        python = str(canonical_interpreter(Path(sys.executable)))
        # No -I: it would switch the fixed hash seed off. The environment holds nothing else.
        argv = (python, "-s", "-S", "-B", str(_WORKER_PROGRAM), worker, str(self.root))
        paths = {
            variable: str(self.assemblers[name][0])
            for variable, name in self.language.programs(self.pins, self.flavour).items()
        }
        variables = {**_VARIABLES, **paths, **self.language.variables(request)}
        if self.host:
            from kbuild.toolchains.wheels.cuda import CROSS_TARGET

            # nvcc reads it itself, so that workers need not know for which processor they compile.
            variables["NVCC_PREPEND_FLAGS"] = f"--target-directory={CROSS_TARGET}"
        return WorkerKind(argv, tuple(sorted(variables.items())))

    def compiler(self, target: ImageTarget) -> dict[str, str]:
        """Versions of everything that compiles for a target, by distribution or program name."""
        versions = pinned_versions(self.pins)
        name = self.language.program(self.pins, self.flavour, target)
        if name is None:
            return versions
        program = name.partition("-")[0]
        label = _ASSEMBLER_LABELS.get(program, program)
        return {**versions, label: self.assemblers[name][1]}

    def key(self, unit: KernelUnit, request: Mapping[str, Any], sources: SourceSnapshot) -> str:
        """Return the cache key of the unit's image.

        The request describes the kernel's arguments; their names in the op, and the dimensions that
        they come from, do not change the code and are not part of the key.
        """
        programs = {**self._programs(unit.target), "request": json_digest(request)}
        nameless = replace(unit, scalars=(), args=())
        return nameless.key(sources.digests, self._versions(programs))

    def kernel_key(self, target: ImageTarget, kernel: str) -> str:
        """Return the cache key of an object that several units may share.

        `kernel` is a worker's digest of everything that is compiled.
        """
        facts = self._versions(self._programs(target))
        return json_digest(["kernel", self.language.name, str(target), kernel, facts])

    def _programs(self, target: ImageTarget) -> dict[str, str]:
        # nvcc starts the C++ compiler as well, so an object depends on its version.
        host = {CXX: self.assemblers[CXX][1]} if CXX in self.assemblers else {}
        return {**self.compiler(target), **host}

    def _versions(self, programs: Mapping[str, str]) -> dict[str, str]:
        """Versions of everything that compiles, the interpreter, and a digest of the worker."""
        python, worker = f"{sys.version_info.major}.{sys.version_info.minor}", self.language.worker
        interpreter = {"python": python, "worker": _worker_digest(worker)}
        return {**pinned_versions(self.pins), **programs, **interpreter}

    def description_key(self, sources: SourceSnapshot) -> str:
        """Return the cache key of the description of the sources."""
        # The first path too: it says which of the same sources has the functions.
        return json_digest([sources.digests, sources.texts[0][0], self._versions({})])


def compile_environment(
    kernel: CompilableKernel, language: Language, environments: DslEnvironments
) -> CompileEnvironment:
    """Return the environment that compiles a kernel, after installing what is missing.

    Raises:
        ToolchainError: the toolchain cannot be used or installed.
    """
    reason = language.unsupported_reason(kernel.toolchain)
    if reason:
        raise ToolchainError(f"kernel.{kernel.name}.toolchain {reason}")
    flavour, host = split_flavour(kernel.flavour)
    pins = language.environment(kernel.toolchain, flavour)
    entry = environments.provide(language.name, pins)
    names = dict.fromkeys(language.programs(pins, flavour).values())
    assemblers = {name: environments.assembler(entry, name, host) for name in names}
    return CompileEnvironment(language, pins, flavour, host, entry.root, assemblers)
