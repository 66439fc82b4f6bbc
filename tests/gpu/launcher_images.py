"""Images for the launcher's test on a GPU, from CUDA C with parameters like Triton's.

`python tests/gpu/launcher_images.py FOLDER [ARCH ...]` compiles them with nvcc where there is no
GPU; the test takes them from `KBUILD_TEST_IMAGES=FOLDER`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ARCHS = ("sm_80", "sm_90a", "sm_100f", "compute_80")
SOURCE = Path(__file__).with_name("launcher_kernels.cu")


def name_of(arch: str) -> str:
    """The file of an arch's images."""
    return f"{arch}.ptx" if arch.startswith("compute_") else f"{arch}.cubin"


def make(folder: Path, archs: Sequence[str] = ARCHS) -> None:
    """Compile the kernels for each arch.

    Raises:
        subprocess.CalledProcessError: nvcc refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for arch in archs:
        kind = "-ptx" if arch.startswith("compute_") else "-cubin"
        target = folder / name_of(arch)
        command = ("nvcc", kind, f"-arch={arch}", "-o", str(target), str(SOURCE))
        subprocess.run(command, check=True)  # noqa: TID251


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:] or ARCHS)
