"""Contracts on imports (`tool.importlinter` in pyproject.toml), and what these cannot say."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "kbuild").rglob("*.py"))
# For each contract of pyproject.toml: a module, a line in it that breaks it, and what is said then.
BREAKS = (
    ("system/errors.py", "import kbuild.plan.plan", "kbuild.system.errors -> kbuild.plan.plan"),
    ("checks/base.py", "def late():\n    import kbuild.checks.size", ".base -> .size"),
    (
        "backends/cpu.py",
        "if TYPE_CHECKING:\n    import kbuild.backends.cuda",
        "kbuild.backends.cpu -> kbuild.backends.cuda",
    ),
    (
        "plugins/migrate/cli.py",
        "import kbuild.plugins.advice.survey",
        "kbuild.plugins.migrate.cli -> kbuild.plugins.advice.survey",
    ),
    ("toolchains/facts.py", "def late():\n    import torch", "kbuild.toolchains.facts -> torch"),
    (
        "publish/card/fill.py",
        "import huggingface_hub",
        "kbuild.publish.card.fill -> huggingface_hub",
    ),
    (
        "dsl/worker/device.py",
        "import kbuild.system.errors",
        "kbuild.dsl.worker.device -> kbuild.system.errors",
    ),
)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """The contracts of a folder with `pyproject.toml` and the package."""
    program = "from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(  # noqa: TID251 - the linter is no part of kbuild
        [sys.executable, "-c", program, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_contracts_on_imports_are_kept() -> None:
    completed = lint_imports(ROOT)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert f"Contracts: {len(BREAKS)} kept, 0 broken." in completed.stdout


def test_each_contract_can_be_broken(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path in MODULES:
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name, line, _ in BREAKS:
        path = tmp_path / "kbuild" / name
        path.write_text(f"{path.read_text('utf-8')}\n{line}\n", "utf-8")
    completed = lint_imports(tmp_path)
    assert completed.returncode == 1, completed.stdout + completed.stderr
    assert f"Contracts: 0 kept, {len(BREAKS)} broken." in completed.stdout
    for _, _, said in BREAKS:
        assert said in completed.stdout


# Parts that are about one vendor's devices: their file formats, toolkits and compilers.
OF_VENDORS = (
    "backends", "checks/readers", "dsl", "ops/expand.py", "ops/image.py", "ops/language.py",
    "ops/unit.py", "plugins/capture/triton", "plugins/debian", "toolchains/wheels",
    "toolchains/cuda_toolkits.py", "toolchains/from_wheels.py", "toolchains/rocm.py",
)  # fmt: skip
# What stands there is no backend's name, or is how somebody else writes it.
OTHER_WORDS = {
    "build/unit/compiler.py": {"cuda"},  # what a toolchain's record calls its toolkit
    "plugins/capture/cute/_launch_runtime.py": {"cuda"},  # a device of Torch
    "plugins/capture/languages.py": {"cuda"},  # a module of NVIDIA's
    "plugins/capture/session.py": {"cuda", "rocm"},  # the GPUs that Triton launches on
    "plugins/capture/helion/generator.py": {"cpu", "cuda"},  # a device of Torch
    "plugins/capture/worker/calls.py": {"cuda"},  # a module of Torch
    "plugins/capture/worker/differentiation.py": {"cuda"},  # a device of Torch
    "plugins/capture/worker/imports.py": {"cuda"},  # what Triton calls a GPU of NVIDIA
    "plugins/capture/worker/replacements.py": {"cuda"},  # what Triton calls a GPU of NVIDIA
    "plugins/capture/worker/settings.py": {"cuda"},  # a device of Torch
    "plugins/capture/worker/trace.py": {"cuda"},  # a device of Torch
    "publish/card/facts.py": {"cpu"},  # what a benchmark's machine is described by
    "checks/policies.py": {"cpu"},  # a key of manylinux's data
    "checks/probes/op_calls.py": {"cpu"},  # a device of Torch
    "project/config/load.py": {"tpu"},  # a table that editions before 5 lack
    # What the arguments of `load_inline` are called, which are cpp_extension's.
    "plugins/inline/inline.py": {"cpu", "cuda", "rocm", "xpu"},
    "plugins/inline/headers.py": {"cuda", "rocm"},
    "plugins/inline/project.py": {"rocm"},
    "ops/tuned_tables.py": {"cpu"},  # a device that tables were measured on
    "project/variant.py": {"cann", "cpu", "cuda"},  # the client's spelling in names of folders
}


def test_the_core_names_no_backend() -> None:
    """Adding a backend is one new file: no table of backends and no comparison elsewhere."""
    from kbuild.backends import BACKENDS

    names, found = set(BACKENDS.names()), {}
    core = [path for path in MODULES if not _is_below(path, OF_VENDORS)]
    assert len(core) > 200
    for path in core:
        text = path.read_text("utf-8")
        if not any(f'"{name}"' in text for name in names):
            continue
        nodes = ast.walk(ast.parse(text))
        literals = {node.value for node in nodes if isinstance(node, ast.Constant)} & names
        if literals:
            found[path.relative_to(ROOT / "kbuild").as_posix()] = literals
    assert found == OTHER_WORDS


def _is_below(path: Path, parts: Sequence[str]) -> bool:
    own = path.relative_to(ROOT / "kbuild")
    return any(own.is_relative_to(part) for part in parts)


def test_class_names_are_unique():
    places: dict[str, list[Path]] = {}
    for path in MODULES:
        for name in re.findall(r"^ *class (\w+)[(:]", path.read_text("utf-8"), re.MULTILINE):
            places.setdefault(name, []).append(path)
    assert len(places) > 500
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert not shared
