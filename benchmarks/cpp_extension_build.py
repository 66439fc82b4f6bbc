"""One build by `torch.utils.cpp_extension` in a process of its own.

`load` is Torch's own code, with the Torch that is installed. It is told to take the headers, the
link libraries and the CUDA toolkit of another Torch release, and not to import what it has made: a
machine without a GPU cannot. It reads an `Extension` as JSON from standard input, as
`against_cpp_extension.py` writes it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Extension:
    """What is built, and against what."""

    name: str
    sources: Sequence[str]
    folder: str
    """Where the build goes; it is there and empty."""
    includes: Sequence[str]
    flags: Sequence[str]
    """For C++ and for nvcc."""
    torch_includes: Sequence[str]
    torch_libraries: str
    cuda_home: str = ""
    """The toolkit; empty for the CPU."""
    cuda: str = ""
    """Its release, e.g. `13.0`."""
    archs: Sequence[str] = ()

    @property
    def library(self) -> Path:
        """What a build makes."""
        return Path(self.folder, f"{self.name}.so")


def build(extension: Extension) -> None:
    """Write the ninja file and run it, link included."""
    import torch

    os.environ["TORCH_CUDA_ARCH_LIST"] = ";".join(extension.archs)
    if extension.cuda_home:
        torch.version.cuda = extension.cuda
    from torch.utils import cpp_extension

    def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
        own = extension.torch_includes if torch_include_dirs else ()
        return [*own, *([f"{extension.cuda_home}/include"] if device_type == "cuda" else ())]

    cpp_extension.CUDA_HOME = extension.cuda_home or None
    cpp_extension.TORCH_LIB_PATH = extension.torch_libraries
    cpp_extension.include_paths = include_paths
    cpp_extension._import_module_from_library = lambda *_: None  # noqa: SLF001
    cpp_extension.load(
        name=extension.name,
        sources=list(extension.sources),
        extra_include_paths=list(extension.includes),
        extra_cflags=list(extension.flags),
        extra_cuda_cflags=list(extension.flags),
        build_directory=extension.folder,
        with_cuda=bool(extension.cuda_home),
    )


if __name__ == "__main__":
    build(Extension(**json.load(sys.stdin)))
