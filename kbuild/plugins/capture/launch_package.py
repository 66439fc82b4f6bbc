"""The files of a package whose Python is the author's, with its launches compiled ahead of time.

The author's files lie in `_captured_sources` as they are. In the place of each, a module of the
package runs it with the DSL's `launch_runtime` where it imports the DSL.
"""

from __future__ import annotations

import pprint
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kbuild.ops.language import Language
from kbuild.plugins.capture.launches import module_of, packaged_module
from kbuild.project.config.section_readers import PackageFiles

SOURCES_FOLDER = "_captured_sources"
"""Folder of a package with the author's files."""
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


@dataclass(frozen=True)
class LaunchKernel:
    """A kernel whose launches are captured, for the package."""

    language: Language
    toolchain: tuple[str, ...]
    sources: tuple[str, ...]
    """The author's files, relative to the project."""
    functions: tuple[Mapping[str, Any], ...]
    """The kernel functions with their launches, each with its `op` and `form`."""
    has_jit: bool
    """True where launches that were not compiled run the DSL."""

    @property
    def version(self) -> str:
        """The pinned version of the DSL."""
        name = self.language.distributions[0]
        pins = (pin.partition("==") for pin in self.toolchain)
        return next(version for distribution, _, version in pins if distribution == name)


def launch_files(kernels: Sequence[LaunchKernel], folder: str) -> PackageFiles:
    """The author's files and what runs them; nothing for no kernels.

    Args:
        kernels: those of one variant.
        folder: the package's folder in the project, such as `torch-ext/my_ops`.
    """
    if not kernels:
        return PackageFiles()
    targets = {
        source: packaged_module(source, folder) for kernel in kernels for source in kernel.sources
    }
    table = pprint.pformat(_table(kernels, targets), width=100, compact=True, sort_dicts=False)
    texts = {"_launches.py": _LAUNCHES, "_launch_table.py": _TABLE.format(table)}
    for source, target in targets.items():
        dots = "." * len(PurePosixPath(target).parts)
        texts[target] = _MODULE.format(source=source, dots=dots, shipped=target)
    runtime = kernels[0].language.launch_runtime
    for path in sorted(runtime.glob("_launch_*.py")) if runtime is not None else ():
        texts[path.name] = path.read_text("utf-8")
    sources = {f"{SOURCES_FOLDER}/{target}": source for source, target in targets.items()}
    return PackageFiles(texts, sources)


def _table(kernels: Sequence[LaunchKernel], targets: Mapping[str, str]) -> dict[str, Any]:
    return {
        "version": kernels[0].version,
        "functions": [function for kernel in kernels for function in kernel.functions],
        "modules": {module_of(source): _relative(target) for source, target in targets.items()},
        "sources": {target: source for source, target in targets.items()},
        "jit": sorted(
            {source for kernel in kernels if kernel.has_jit for source in kernel.sources}
        ),
    }


def _relative(target: str) -> str:
    return f".{target.removesuffix('.py').removesuffix('__init__').strip('/').replace('/', '.')}"
