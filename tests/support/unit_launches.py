"""A place to launch units of the fake compiler from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kbuild.build import launcher
from kbuild.build.unit_log import UnitLog, read_log
from kbuild.system.unit_settings import LauncherSettings

Process: TypeAlias = "subprocess.Popen[str]"  # noqa: TID251
FAKE = Path(__file__).with_name("fake_compiler.py")


@dataclass(frozen=True)
class UnitRun:
    """`project/` with sources, one run, one cache."""

    root: Path
    memory: int = 4096
    deadline: float = 0.0
    tool: str = ""
    keeps: bool = True
    jobs: int = 0
    compilers: str = ""

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def compiler(self) -> Path:
        """The fake compiler as a program of its own, so that tests may change it."""
        program = self.root / "bin" / "fake-c++"
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!{sys.executable} -IS\n{FAKE.read_text()}")
            program.chmod(0o755)
        return program

    def write(self, name: str, text: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1e9, 1e9))  # settled: hashes of files that just changed are not kept
        return path

    def start(self, *arguments: str, tree: str = "tree", language: str = "CXX") -> Process:
        """Launch a command in the build tree `tree`."""
        folder = self.root / tree
        folder.mkdir(parents=True, exist_ok=True)
        (self.root / "run").mkdir(exist_ok=True)
        settings = LauncherSettings(
            run=str(self.root / "run"),
            cache=str(self.root / "cache") if self.keeps else "",
            memory=self.memory,
            deadline=self.deadline,
            tool=self.tool,
            variant=tree,
            root=str(self.project),
            jobs=self.jobs,
            compilers=self.compilers,
        )
        starts = {"FAKE_STARTS": str(self.root / "starts")}
        command = (sys.executable, "-I", "-S", launcher.__file__, language, *arguments)
        return subprocess.Popen(  # noqa: TID251
            command,
            cwd=folder,
            env={**os.environ, **settings.to_environment(), **starts},
            stderr=subprocess.PIPE,
            text=True,
        )

    def command(self, source: str, *flags: str, tree: str = "tree") -> tuple[str, ...]:
        """As CMake writes it."""
        maps = (
            f"-ffile-prefix-map={self.project}=/kernel",
            f"-ffile-prefix-map={self.root / tree}=/build",
        )
        target = f"{Path(source).name}.o"
        outputs = ("-MD", "-MT", target, "-MF", f"{target}.d", "-o", target)
        return (str(self.compiler), *maps, *flags, *outputs, "-c", str(self.project / source))

    def compile(self, source: str, *flags: str, tree: str = "tree", expect: int = 0) -> str:
        """Launch one unit to its end; what was said."""
        process = self.start(*self.command(source, *flags, tree=tree), tree=tree)
        _, said = process.communicate(timeout=60)
        assert process.returncode == expect, said
        return said

    def object_of(self, source: str, tree: str = "tree") -> str:
        return (self.root / tree / f"{source}.o").read_text()

    def forget_objects(self) -> None:
        shutil.rmtree(self.root / "tree")

    @property
    def log(self) -> UnitLog:
        return read_log(self.root / "run" / "units.jsonl")

    @property
    def outcomes(self) -> list[str]:
        return [unit.cache for unit in self.log.units]

    @property
    def starts(self) -> int:
        """How often the compiler itself ran."""
        path = self.root / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0
