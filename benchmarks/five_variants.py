"""`kbuild build` of five variants of `examples/relu`, in CPU time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RELU = Path(__file__).resolve().parents[1] / "examples" / "relu"
VARIANTS = (
    "torch213-cxx11-cpu-x86_64-linux",
    "torch213-cxx11-cu130-x86_64-linux",
    "torch213-cxx11-cu132-x86_64-linux",
    "torch214-cxx11-cu130-x86_64-linux",
    "torch214-cxx11-cu132-x86_64-linux",
)
TOOLCHAINS = ("torch-2.13", "torch-2.14", "cuda-13.0", "cuda-13.2")


def cpu_seconds(argv: Sequence[str], env: Mapping[str, str], given: str = "") -> tuple[float, str]:
    """CPU seconds of a process and all that it waited for, and its output; it must succeed."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as stdin:
        stdin.write(given)
        stdin.seek(0)
        started = subprocess.Popen(argv, env=env, stdin=stdin, stdout=said, stderr=said)  # noqa: TID251
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        output = said.read()
    if started.returncode:
        sys.exit(f"{' '.join(argv)} failed:\n{output}")
    return usage.ru_utime + usage.ru_stime, output


@dataclass(frozen=True)
class Workplace:
    """A copy of the example and a cache of its own."""

    project: Path
    cache: Path

    def build(self) -> dict[str, float]:
        """CPU seconds of the five variants, their objects, and those that the cache had."""
        argv = [*_kbuild("build", self.project), "--quiet", "--color", "never"]
        seconds, output = cpu_seconds(argv, self._env)
        made = json.loads(output[output.index("{") :])["variants"]
        if [one["status"] for one in made] != ["built"] * len(VARIANTS):
            sys.exit(f"expected {len(VARIANTS)} built variants, got:\n{output}")
        counts = {key: sum(one[key] for one in made) for key in ("objects", "from_cache")}
        return {"cpu": seconds, **counts}

    def units(self) -> dict[str, float]:
        """CPU seconds of the compilers in the last build, by variant and unit."""
        text = (self.project / ".kbuild" / "report" / "units.jsonl").read_text()
        units = [json.loads(line) for line in text.splitlines()]
        return {
            f"{unit['variant']} {unit['unit']}": unit["user"] + unit["system"]
            for unit in units
            if unit.get("cache") == "miss"
        }

    def provision(self) -> None:
        """Fetch the toolchains that are missing."""
        argv = [sys.executable, "-m", "kbuild", "toolchain", "install", *TOOLCHAINS]
        cpu_seconds(argv, self._env)

    def clean(self) -> None:
        """Remove the build folders."""
        for folder in ("build", ".kbuild"):
            shutil.rmtree(self.project / folder)

    def plans(self) -> list[dict[str, Any]]:
        """What kbuild decided for each variant."""
        done = subprocess.run(  # noqa: TID251
            _kbuild("plan", self.project), env=self._env, capture_output=True, text=True, check=True
        )
        plans: list[dict[str, Any]] = json.loads(done.stdout)
        return plans

    def facts(self, variant: str) -> dict[str, str]:
        """Where the variant's build found what it needed, by the names of CMake's cache."""
        text = (self.project / ".kbuild" / variant / "tree" / "CMakeCache.txt").read_text()
        lines = (line.partition("=") for line in text.splitlines() if line[:1].isalpha())
        return {name.partition(":")[0]: value for name, _, value in lines}

    @property
    def _env(self) -> dict[str, str]:
        return {**os.environ, "KBUILD_CACHE_DIR": str(self.cache)}


def _kbuild(verb: str, project: Path) -> list[str]:
    variants = (word for name in VARIANTS for word in ("--variant", name))
    return [sys.executable, "-m", "kbuild", verb, str(project), "--json", *variants]
