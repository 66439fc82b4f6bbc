"""Where one kernel's units are compiled: its environment, its assemblers, its kind of worker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.languages.base import Language
from kbuild.languages.environment import CXX, HIP, TOOLKIT, Environments
from kbuild.languages.inputs import Kernel, Snapshot, digest, toolchain
from kbuild.languages.pool import Kind
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit
from kbuild.run import interpreter_name

_PROGRAM = Path(__file__).parent / "worker" / "__main__.py"
_VARIABLES = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    # Paths would come into the images with it.
    "TRITON_DISABLE_LINE_INFO": "1",
    # Releases have different defaults.
    "TRITON_DEFAULT_FP_FUSION": "1",
    "TRITON_BACKENDS_IN_TREE": "1",
    # Registers and spills are read from it.
    "TRITON_DUMP_PTXAS_LOG": "1",
}
"""The whole environment of a worker, but for its home."""
_LABELS = {TOOLKIT.rstrip("-"): "nvcc", CXX: CXX, HIP: "clang"}
"""What a program is called beside an image, where that is no ptxas."""
Assembler = tuple[Path, str]


@dataclass(frozen=True)
class Workplace:
    """For one language, its pins and one kind of machine code."""

    language: Language
    pins: tuple[str, ...]
    flavour: str
    root: Path
    """The environment."""
    assemblers: Mapping[str, Assembler]
    """Name -> place and version."""

    def kind(self, request: Mapping[str, Any]) -> Kind:
        """The workers that can be asked that."""
        worker = self.language.worker
        python = str(interpreter_name(Path(sys.executable)))
        # No -I: it would switch the fixed hash seed off. The environment holds nothing else.
        argv = (python, "-s", "-S", "-B", str(_PROGRAM), worker, str(self.root))
        paths = {
            variable: str(self.assemblers[name][0])
            for variable, name in self.language.programs(self.pins, self.flavour).items()
        }
        own = self.language.variables(request)
        return Kind(argv, tuple(sorted({**_VARIABLES, **paths, **own}.items())))

    def compiler(self, target: Target) -> dict[str, str]:
        """What compiles for a target: distribution or program -> version."""
        versions = {
            name: version for name, _, version in (pin.partition("==") for pin in self.pins)
        }
        name = self.language.program(self.pins, self.flavour, target)
        if name is None:
            return versions
        label = _LABELS.get(name.partition("-")[0], "ptxas")
        return {**versions, label: self.assemblers[name][1]}

    def key(self, unit: Unit, request: Mapping[str, Any], sources: Snapshot) -> str:
        """What the unit's image is kept under.

        The request says what the kernel's arguments are. What the op calls them, and the dimensions
        that they come from, is of no account.
        """
        programs = {**self._programs(unit.target), "request": digest(request)}
        nameless = replace(unit, scalars=(), args=())
        return nameless.key(sources.digests, toolchain(self.pins, programs))

    def kernel_key(self, target: Target, kernel: str) -> str:
        """What an object is kept under that several units may share.

        Args:
            target: what it is compiled for.
            kernel: the digest that a worker gives of everything that is compiled.
        """
        facts = toolchain(self.pins, self._programs(target))
        return digest(["kernel", self.language.name, str(target), kernel, facts])

    def _programs(self, target: Target) -> dict[str, str]:
        host = {CXX: self.assemblers[CXX][1]} if CXX in self.assemblers else {}
        return {**self.compiler(target), **host}

    def description_key(self, sources: Snapshot) -> str:
        """What the description of the sources is kept under."""
        return digest([sources.digests, sources.texts[0][0], toolchain(self.pins, {})])


def workplace(kernel: Kernel, language: Language, environments: Environments) -> Workplace:
    """The workplace of a kernel; installs what is not there.

    Raises:
        ToolchainError: the toolchain cannot be used or had.
    """
    reason = language.refuses(kernel.toolchain)
    if reason:
        raise ToolchainError(f"kernel.{kernel.name}.toolchain {reason}")
    pins = language.environment(kernel.toolchain, kernel.flavour)
    entry = environments.provide(language.name, pins)
    names = dict.fromkeys(language.programs(pins, kernel.flavour).values())
    assemblers = {name: environments.assembler(entry, name) for name in names}
    return Workplace(language, pins, kernel.flavour, entry.root, assemblers)
