"""Requests for variants to load, and the key of what was built for one.

A process that loads an unchanged kernel imports this and little more of kbuild.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_VARIABLES = (
    "PATH", "CXX", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "CPATH", "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "VIRTUAL_ENV",
)  # fmt: skip
"""Variables that decide about compilers and GPUs of a build, beside kbuild's own."""
_GPU_FOLDERS = ("/proc/driver/nvidia/gpus", "/sys/class/kfd/kfd/topology/nodes", "/dev/dri")


LOAD_FOLDER = Path(".kbuild", "load")
"""Folder of the variants that are loaded from a project."""


@dataclass(frozen=True)
class VariantRequest:
    """The variant to load."""

    root: Path
    backend: str | None = None
    """None for the one of this machine's devices."""
    archs: tuple[str, ...] = ()
    """Empty for those of this machine's devices."""
    link_flags: tuple[str, ...] = ()
    verbose: bool = False
    unique_id: str = ""
    """Ends the op namespace."""
    module_name: str = ""
    """Name of the package in `sys.modules`; that of the op namespace when empty."""

    @property
    def folder(self) -> Path:
        """The folder of the project's records and variants."""
        return self.root / LOAD_FOLDER

    @property
    def key(self) -> str:
        """A name for the request, with this interpreter, its Torch, machine and environment."""
        own = sorted(name for name in os.environ if name.startswith("KBUILD_"))
        environ = {name: os.environ.get(name) for name in (*_VARIABLES, *own)}
        gpus = [_names(folder) for folder in _GPU_FOLDERS]
        asked = [self.backend, self.archs, self.link_flags]
        facts = [asked, sys.executable, sys.version, str(torch_folder()), environ, gpus]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def torch_folder() -> Path | None:
    """The folder of the Torch that this process imports, or would; None without one."""
    loaded = sys.modules.get("torch")
    if loaded is not None and loaded.__file__:
        return Path(loaded.__file__).parent
    spec = find_spec("torch")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - as few calls as can be
    except OSError:
        return []


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let no other process build or import what `path` belongs to; the lock ends with this one."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
