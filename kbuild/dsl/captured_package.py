"""What a package has where its Python is the author's, and its launches are compiled.

The author's files lie in `_captured_sources` as they are. In the place of each, a module of the
package runs it with the DSL's `launch_runtime` where it imports the DSL.
"""

from __future__ import annotations

import pprint
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kbuild.dsl.python_package import PYTHON_FOLDER
from kbuild.ops.captured.launches import module_of, packaged_module
from kbuild.ops.language import LANGUAGES
from kbuild.plan.plan import AotKernel, VariantPlan
from kbuild.project.config.document import CAPTURED_SOURCES
from kbuild.system.files import FileSet

_LAUNCHES = '''\
"""Runs the author's files with the launches that were compiled ahead of time. Written by kbuild."""

from ._launch_runtime import Package
from ._launch_table import TABLE
from ._ops import ops

execute = Package(__package__, ops, TABLE).execute
'''
_TABLE = '''\
"""The launches that were compiled ahead of time. Written by kbuild."""

# fmt: off
TABLE = {}
'''
_MODULE = '''\
"""`{source}`, with its launches compiled ahead of time. Written by kbuild."""

from {dots}_launches import execute as _kbuild_execute

_kbuild_execute(__name__, "{shipped}")
'''


def captured_files(plan: VariantPlan, root: Path, package_root: str) -> FileSet:
    """The author's files and what runs them; nothing where no launches are captured.

    Args:
        plan: of one variant.
        root: the project.
        package_root: the folder of the project that has the package's folder, such as `torch-ext`.
    """
    kernels = [kernel for kernel in plan.aot if kernel.captured]
    files = FileSet()
    if not kernels:
        return files
    targets = {
        source: packaged_module(source, f"{package_root}/{plan.kernel.python_name}")
        for kernel in kernels
        for source in kernel.captured["sources"]
    }
    for source, target in targets.items():
        dots = "." * len(PurePosixPath(target).parts)
        text = _MODULE.format(source=source, dots=dots, shipped=target)
        files.add(f"{PYTHON_FOLDER}/{target}", text)
        files.add(f"{PYTHON_FOLDER}/{CAPTURED_SOURCES}/{target}", (root / source).read_bytes())
    table = pprint.pformat(_table(kernels, targets), width=100, compact=True, sort_dicts=False)
    files.add(f"{PYTHON_FOLDER}/_launches.py", _LAUNCHES)
    files.add(f"{PYTHON_FOLDER}/_launch_table.py", _TABLE.format(table))
    runtime = LANGUAGES.get(kernels[0].language).launch_runtime
    for path in sorted(runtime.glob("_launch_*.py")) if runtime is not None else ():
        files.add(f"{PYTHON_FOLDER}/{path.name}", path.read_text("utf-8"))
    return files


def _table(kernels: Sequence[AotKernel], targets: Mapping[str, str]) -> dict[str, Any]:
    return {
        "version": _version(kernels[0]),
        "functions": [f for kernel in kernels for f in kernel.captured["functions"]],
        "modules": {module_of(source): _relative(target) for source, target in targets.items()},
        "sources": {target: source for source, target in targets.items()},
        "jit": sorted(
            {s for kernel in kernels if kernel.captured["jit"] for s in kernel.captured["sources"]}
        ),
    }


def _relative(target: str) -> str:
    return f".{target.removesuffix('.py').removesuffix('__init__').strip('/').replace('/', '.')}"


def _version(kernel: AotKernel) -> str:
    """The pinned version of the DSL."""
    name = LANGUAGES.get(kernel.language).distributions[0]
    pins = (pin.partition("==") for pin in kernel.toolchain)
    return next(version for distribution, _, version in pins if distribution == name)
