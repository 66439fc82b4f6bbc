"""What large projects cost before anything is compiled: `plan`, `create-pyproject` and the like.

A project of 3,500 sources and 2,000 headers is generated, in sections of 100 sources for CUDA and
the same for ROCm, which makes 26 variants. Each source includes ten headers, and these include
others: in chains and cycles, behind conditions, by one name from two folders, with `include_next`,
through links. The same is done with a quarter of it: what grows faster than the project shows in
the ratio of the two.

    python benchmarks/plan.py [--sources 3500] [--headers 2000] [--save] [--json]

Each command runs in a fresh process, `git` included, with a cache folder that the first command
has made. Figures are CPU seconds and the peak of the process's memory. Nothing is compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from report import save, table

PER_SECTION = 100
INCLUDES = 10
PLAN_LIMIT, RATIO_LIMIT = 3.0, 4.6
"""CPU seconds, and how often the time of a quarter."""
SETTLED = 2.5
"""Seconds."""
COMMANDS: dict[str, Sequence[str]] = {
    "check-config": ("check-config", "PROJECT"),
    "check-config, again": ("check-config", "PROJECT"),
    "list-variants": ("list-variants", "PROJECT"),
    "plan": ("plan", "PROJECT", "--no-toolchain"),
    "plan, with toolchains": ("plan", "PROJECT"),
    "plan as JSON": ("plan", "PROJECT", "--no-toolchain", "--json"),
    "create-pyproject": ("create-pyproject", "PROJECT", "TARGET", "--force"),
    "check": ("check", "PROJECT", "--no-load"),
}


def generate(root: Path, sources: int, headers: int) -> None:
    """Write a project of that many sources and headers into a new folder."""
    chance = random.Random(0)  # noqa: S311
    shared = headers // 2
    for number in range(shared):
        _write(root / f"csrc/include/common/h{number}.h", _shared_header(number, shared, chance))
    (root / "csrc/linked").symlink_to("include", target_is_directory=True)
    groups = range(-(-sources // PER_SECTION))
    own = (headers - shared) // max(len(groups), 1)
    left = sources
    for group in groups:
        folder = root / f"csrc/group{group}"
        for number in range(own):
            _write(folder / f"own{number}.cuh", _own_header(number, own, shared, chance))
        # One name in each group's folder and in the shared one: which is meant, the folder says.
        _write(folder / "common/h0.h", "#pragma once\n#include_next <common/h0.h>\n")
        for number in range(min(PER_SECTION, left)):
            _write(folder / f"unit{number}.cu", _source(number, own, shared, chance))
        left -= PER_SECTION
    _write(root / "torch-ext/torch_binding.cpp", _BINDING)
    _write(root / "torch-ext/large/__init__.py", "from ._ops import ops\n")
    _write(root / "build.toml", "\n".join(_build_toml(sources)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _shared_header(number: int, count: int, chance: random.Random) -> str:
    """A header of a chain, with a way back to its start, and what only some compilers see."""
    lines = ["#pragma once", "#include <cstdint>"]
    lines += [f'#include "h{number + 1}.h"'] if number + 1 < count else ['#include "h0.h"']
    lines += [f"#include <common/h{chance.randrange(count)}.h>" for _ in range(3)]
    lines += ["#ifdef __HIPCC__", f'#include "linked/common/h{chance.randrange(count)}.h"']
    lines += ["#else", '#include "not/here.h"', "#endif", _body(f"shared{number}", 40)]
    return "\n".join(lines)


def _own_header(number: int, count: int, shared: int, chance: random.Random) -> str:
    lines = ["#pragma once", f'#include "own{(number + 1) % count}.cuh"']
    lines += [f'#include "common/h{chance.randrange(shared)}.h"' for _ in range(2)]
    return "\n".join([*lines, _body(f"own{number}", 40)])


def _source(number: int, own: int, shared: int, chance: random.Random) -> str:
    lines = [f"// Unit {number}.", "#include <cuda_runtime.h>"]
    lines += [f'#include "own{chance.randrange(own)}.cuh"' for _ in range(INCLUDES // 2)]
    lines += [
        f"#include <common/h{chance.randrange(shared)}.h>" for _ in range(INCLUDES - INCLUDES // 2)
    ]
    return "\n".join([*lines, _body(f"unit{number}", 60)])


def _body(name: str, lines: int) -> str:
    rows = (f"  value += {name}_table[{i}] * scale; /* row {i} */" for i in range(lines))
    return "\n".join([f"inline float {name}(float scale) {{", "  float value = 0;", *rows, "}", ""])


def _build_toml(sources: int) -> Iterator[str]:
    yield '[general]\nname = "large"\nversion = 1\nedition = 5\nlicense = "Apache-2.0"'
    yield 'backends = ["cuda", "rocm"]\n\n[torch]\nsrc = ["torch-ext/torch_binding.cpp"]\n'
    for backend in ("cuda", "rocm"):
        for start in range(0, sources, PER_SECTION):
            group = start // PER_SECTION
            yield f'[kernel.group{group}-{backend}]\nbackend = "{backend}"\ndepends = ["torch"]'
            yield f'include = ["csrc/group{group}", "csrc/include", "csrc"]\nsrc = ['
            for number in range(min(PER_SECTION, sources - start)):
                yield f'  "csrc/group{group}/unit{number}.cu",'
            yield "]\n"


_BINDING = """#include <torch/library.h>
#include "registration.h"
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def run(
    argv: Sequence[str], env: Mapping[str, str], program: Sequence[str] = ("-m", "kbuild")
) -> dict[str, float]:
    """Seconds of a command, CPU seconds of all that it started as well, and MB of its peak."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        started = subprocess.Popen(  # noqa: TID251 - its own usage is what is measured
            [sys.executable, *program, *argv], env=env, stdout=said, stderr=said
        )
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        if started.returncode:
            said.seek(0)
            sys.exit(f"kbuild {' '.join(argv)} failed:\n{said.read().decode()[-4000:]}")
    wall, cpu = time.perf_counter() - began, usage.ru_utime + usage.ru_stime
    return {"wall": wall, "cpu": cpu, "peak": usage.ru_maxrss * 1024 / 1e6}


def measure(folder: Path, sources: int, headers: int, only: str) -> dict[str, dict[str, float]]:
    """Every command on a project of this size, under git."""
    project, target = folder / "project", folder / "target"
    generate(project, sources, headers)
    target.mkdir()
    time.sleep(SETTLED)  # git reads files again that are as young as its index
    env = {**os.environ, "KBUILD_CACHE_DIR": str(folder / "cache")}
    for git in (("init", "-q"), ("add", "."), ("commit", "-qm", "all")):
        subprocess.run(  # noqa: TID251
            ("git", "-c", "user.name=a", "-c", "user.email=a@b", *git), cwd=project, check=True
        )
    run(("list-variants", str(project)), env)  # bytecode, and facts about this machine
    places = {"PROJECT": str(project), "TARGET": str(target)}
    return {
        name: run([places.get(word, word) for word in argv], env)
        for name, argv in COMMANDS.items()
        if only in name
    }


def main() -> int:
    """Exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sources", type=int, default=3500)
    parser.add_argument("--headers", type=int, default=2000)
    parser.add_argument("--only", default="", help="commands whose name contains this")
    parser.add_argument("--write", type=Path, help="write the project there and measure nothing")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/plan.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.write:
        shutil.rmtree(args.write, ignore_errors=True)
        generate(args.write, args.sources, args.headers)
        return 0
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed kbuild has bytecode
    figures = []
    for part in (4, 1):
        with tempfile.TemporaryDirectory() as name:
            size = (args.sources // part, args.headers // part)
            figures.append(measure(Path(name), *size, args.only))
    result = {"sources": args.sources, "headers": args.headers, **_judged(*figures)}
    if args.save:
        save("plan", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))
    return int(any(row["value"] > row["target"] for row in result["targets"]))


def _judged(
    quarter: Mapping[str, Mapping[str, float]], whole: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    seconds = [
        {"what": f"{name}, CPU s", "value": whole[name]["cpu"], "target": PLAN_LIMIT}
        for name in whole
        if name.startswith(("plan", "create", "check-config"))
    ]
    ratios = [
        {"what": f"{name}, to a quarter", "value": value["cpu"] / quarter[name]["cpu"]}
        for name, value in whole.items()
    ]
    targets = [*seconds, *(row | {"target": RATIO_LIMIT} for row in ratios)]
    return {"figures": whole, "a quarter": quarter, "targets": targets}


if __name__ == "__main__":
    sys.exit(main())
