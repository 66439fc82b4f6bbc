"""`kbuild.load`: a project as a module of the running interpreter, built if anything changed."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from kbuild.loading.request import (
    LOAD_FOLDER,
    VariantRequest,
    locked,
)
from kbuild.project import DEVELOPMENT_ID
from kbuild.system.cache import LOADED_VARIANT, Cache
from kbuild.system.cache_folder import cache_folder
from kbuild.system.errors import UsageError
from kbuild.system.record import Record, read_record, texts

VariantBuild = Callable[[VariantRequest, Path], Record]
"""Builds a variant; the answer has its folder, `variant`, and the name of its package, `module`."""


@dataclass
class _LoadedKernel:
    """The variants of one project that this process has loaded."""

    loads: int = 0
    """Variants that were imported: each has a namespace of its own."""
    records: dict[str, tuple[Record, ModuleType]] = field(default_factory=dict)
    """The latest variant of each request."""


_loaded: dict[Path, _LoadedKernel] = {}
# Reentrant, because the code of a kernel that is imported may load another one.
_lock = threading.RLock()


def load(
    path: str | os.PathLike[str] = ".",
    *,
    backend: str | None = None,
    archs: Sequence[str] | None = None,
    verbose: bool = False,
) -> ModuleType:
    """Build a kernel for this interpreter and this machine if anything changed, and import it.

    The variant is the one for the interpreter's Torch, and for the GPUs of this machine alone. It
    is built in the project's `.kbuild` folder, without the checks of `kbuild build`. A kernel that
    was edited after it was loaded gets another op namespace, and the module that was loaded before
    stays usable.

    Args:
        path: the folder of `build.toml`.
        backend: a backend of the project, e.g. `"cpu"`; by default the one whose GPUs this machine
            and this Torch have, and `"cpu"` without one.
        archs: GPU architectures to compile for, e.g. `["9.0"]`, instead of this machine's.
        verbose: whether messages and progress are printed on stderr; a notebook shows progress
            anyway.

    Returns:
        The variant's Python package, as the `kernels` client gives it. The same module again
        while nothing has changed.

    Raises:
        UsageError: there is no such folder, or the project has no such backend.
        ConfigError: `build.toml` is wrong.
        ToolchainError: no variant can be built here; the message says what is missing.
        BuildError: a source does not compile; the message has the first error.
        ImportError: the package was built and cannot be imported.
    """
    root = Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111 - keeps links
    if not (root / "build.toml").is_file():
        raise UsageError(
            f"`{root}` has no build.toml", hint="give the folder of a kernel, or `kbuild init` one"
        )
    request = VariantRequest(root, backend, tuple(archs or ()), verbose=verbose)
    return load_variant(request)[1]


def load_variant(
    request: VariantRequest, build: VariantBuild | None = None
) -> tuple[Path, ModuleType]:
    """The folder of the variant of a project, and its module.

    Args:
        request: without a `unique_id`, the op namespace is that of development builds, and a
            numbered one when this process has that already.
        build: builds the variant if anything changed, with kbuild's cache folder.

    Raises:
        KbuildError, ImportError: see `load`.
    """
    cache, key = cache_folder(os.environ), request.key
    with _lock:
        kernel = _loaded.setdefault(request.root, _LoadedKernel())
        if key in kernel.records:
            record, module = kernel.records[key]
            if record.holds(request.root, cache):
                return Path(record.answer["variant"]), module
        if not (request.root / LOAD_FOLDER).is_dir():
            from kbuild.system.workspace import Workspace

            # Backups and git leave the folder out.
            Workspace(request.root, LOAD_FOLDER.name).prepare()
        with locked(request.folder / "lock"):
            record = _built(request, key, kernel.loads, build or _build, cache)
            # Torch cannot register an op namespace twice, so another project's name leads to a new
            # number.
            while not request.unique_id and _is_imported(record.answer["module"]):
                kernel.loads += 1
                record = _built(request, key, kernel.loads, build or _build, cache)
            kernel.loads += 1
            variant = Path(record.answer["variant"])
            module = import_variant(variant, request.module_name or record.answer["module"])
            kernel.records[key] = record, module
            return variant, module


def _build(request: VariantRequest, cache: Path) -> Record:
    from kbuild.loading.variant_build import build_to_load

    return build_to_load(request, cache)


def has_outdated(request: VariantRequest) -> bool:
    """True if this process has loaded the project, and one of its inputs has changed since."""
    with _lock:
        kernel = _loaded.get(request.root)
        known = kernel.records.get(request.key) if kernel else None
        return known is not None and not known[0].holds(request.root, cache_folder(os.environ))


def _built(
    request: VariantRequest, key: str, loads: int, build: VariantBuild, cache: Path
) -> Record:
    """The variant, as it is stored or as it is built now.

    Without a `unique_id` its op namespace is that of development builds, so that all of them share
    what is compiled; each later variant of a process has one of its own.
    """
    if not request.unique_id:
        unique_id = f"{DEVELOPMENT_ID}_{loads + 1}" if loads else DEVELOPMENT_ID
        request = replace(request, unique_id=unique_id)
    key, entries = f"{key}-{request.unique_id}", Cache(request.folder, LOADED_VARIANT)
    record = read_record(entries, key, texts("variant", "module"))
    if record is None or not record.holds(request.root, cache):
        record = build(request, cache)
        record.write(entries, key)
    return record


def _is_imported(module: str) -> bool:
    """True if the process has the op namespace already, e.g. of a project with the same name."""
    return any(name == module or name.endswith(f"._{module}") for name in sys.modules)


def _dependencies(variant: Path) -> AbstractContextManager[Any]:
    """Load the kernels that a variant depends on, for its calls of `kernels.get_kernel_dep`.

    Raises:
        ImportError: it depends on kernels, and the client is not installed.
    """
    metadata = json.loads((variant / "metadata.json").read_text("utf-8"))
    entries = metadata.get("kernel-depends", ())
    if not entries:
        return nullcontext()
    client = import_module("kernels")
    loaded = {
        entry["repo-id"]: client.get_kernel(
            entry["repo-id"], version=entry.get("version"), revision=entry.get("revision")
        )
        for entry in entries
    }
    context: AbstractContextManager[Any] = client.deps.use_kernel_deps(loaded)
    return context


def import_variant(variant: Path, name: str) -> ModuleType:
    """Import the package in a variant's folder.

    Raises:
        ImportError: its code raises one; other errors of its code come through as they are.
    """
    spec = spec_from_file_location(name, variant / "__init__.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"`{variant}` is not a package", name=name, path=str(variant))
    module = module_from_spec(spec)
    # Before its code runs, as `import` does: the package imports its own submodules.
    sys.modules[name] = module
    try:
        with _dependencies(variant):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
