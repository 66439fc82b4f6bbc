"""A machine made of answers: no process starts, no file of the real machine is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbuild.pipeline.toolchains import Toolchains
from kbuild.plan.plan import Requirements
from kbuild.system.processes import ProcessResult
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.dependency_headers.search import HeaderResolver
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import HostToolchains

MACROS = "torch/csrc/stable/macros.h"


class FakeRunner:
    """Answers by a word that the command contains; remembers what was asked."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.asked: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        command = tuple(str(part) for part in argv)
        self.asked.append(command)
        for word, answer in self.answers.items():
            if word in " ".join(command):
                made = answer(command) if callable(answer) else answer
                return ProcessResult(command, 0, made, 0.0) if isinstance(made, str) else made
        if "-dM" in command:  # what manylinux asks of the compiler: of no concern here
            return ProcessResult(command, 1, "", 0.0)
        raise AssertionError(f"nobody answers {command}")


def failed(output: str) -> ProcessResult:
    return ProcessResult((), 1, output, 0.0)


def fake_torch(folder: Path, version: str = "2.13.0+cpu", hip: str | None = None) -> dict[str, Any]:
    """Facts of a Torch, with the few files that are read."""
    root = folder / "torch"
    header = root / "include" / MACROS
    header.parent.mkdir(parents=True)
    header.write_text("cudaError_t\n")
    (header.parent / "tensor.h").write_text("Tensor\n")
    (root / "utils" / "hipify").mkdir(parents=True)
    (root / "utils" / "hipify" / "hipify_python.py").write_text("")
    (root / "version.py").write_text("")
    return {
        "root": str(root), "version": version, "built_for": {"hip": hip} if hip else {},
        "include_dirs": [str(root / "include")], "library_dir": str(root / "lib"),
        "cxx11_abi": True,
    }  # fmt: skip


def translate(command: Sequence[str]) -> str:
    """What the script of `hip_headers` does, in short."""
    header = Path(command[-1], MACROS)
    header.write_text(header.read_text().replace("cuda", "hip"))
    return ""


def machine(folder: Path, torch: dict[str, Any] | None) -> tuple[HostToolchains, FakeRunner]:
    """A host with a compiler, and with this Torch."""
    python = folder / "python"
    python.write_text("")
    python.chmod(0o755)
    facts = {
        "python": {"executable": str(python), "include_dir": "", "purelib": str(folder)},
        "torch": torch, "tvm_ffi": None,
    }  # fmt: skip
    runner = FakeRunner(
        {
            "probe.py": json.dumps(facts),
            "hipify_headers.py": translate,
            "-print-file-name=crtbegin.o": "/usr/lib/gcc/13/crtbegin.o\n",
            "clang++ --version": "AMD clang version 20\n",
            "-Wl,-soname": "",
            "--version": "c++ 13\n",
        }
    )
    return HostToolchains(runner, FactCache(folder / "cache"), python), runner


class FakeSource(ToolchainSource):
    """Serves everything that needs no headers, unless it has a reason not to."""

    def __init__(self, name: str, reason: str | None = None, *backends: str) -> None:
        self.name, self.reason, self.backends = name, reason, backends

    def unsupported_reason(self, requires: Requirements) -> str | None:
        return self.reason or ("needs headers" if requires.libraries else None)

    def provision(self, requires: Requirements) -> Toolchain:
        assert not requires.libraries
        programs = (Path("cmake"), Path("ninja"), Path("python"))
        return Toolchain(self.name, *programs, cache=(("A", "1"),), versions=(("c++", "12"),))


def toolchains(*sources: ToolchainSource) -> Toolchains:
    """Toolchains from these sources, without any headers."""
    return Toolchains(sources, HeaderResolver({}, Path("none"), FakeRunner({}), {}))


def stable(toolkit: str = "7.2", **changes: Any) -> Requirements:
    """Requirements of a variant on the stable ABI."""
    given = {"torch": "2.11", "torch_exact": False, "system": "x86_64-linux"} | changes
    return Requirements("rocm", toolkit=toolkit, **given)


def full(torch: str = "2.13", toolkit: str = "7.2") -> Requirements:
    """Requirements of a variant on Torch's full ABI."""
    return stable(toolkit, torch=torch, torch_exact=True)


def fake_rocm(folder: Path, version: str = "7.2.1-43") -> Path:
    """What is looked at of a ROCm installation."""
    for name in ("llvm/bin/clang++", "bin/hipcc", "lib/cmake/hip/hip-config.cmake"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
        (folder / name).chmod(0o755)
    (folder / ".info").mkdir()
    (folder / ".info" / "version").write_text(f"{version}\n")
    return folder
