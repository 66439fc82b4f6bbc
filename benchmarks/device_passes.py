"""A `.cu` with torch/all.h for all architectures of CUDA 13.0, beside nvcc alone: time, objects.

Builds a project with one such unit twice, from nothing: once with KBUILD_PRECOMPILED_HEADERS=off,
when nvcc reads all of Torch for each architecture, and once without. It ends with an error if an
object or a list of dependencies differs.

    python benchmarks/device_passes.py [--cache DIR] [--arch ARCH]... [--save] [--json]

`--cache` is a cache folder of kbuild whose toolchains are taken.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from five_variants import cpu_seconds
from report import save, table

from kbuild.cli.cache_folder import cache_folder

VARIANT = "torch213-cxx11-cu130-x86_64-linux"
TARGET = 0.4
FILES = {
    "build.toml": """[general]
name = "scale"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[general.hub]
repo-id = "benchmarks/scale"

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.scale]
backend = "cuda"
depends = ["torch"]
src = ["scale.cu"]
""",
    "torch-ext/torch_binding.cpp": """#include <torch/library.h>
#include "registration.h"
void scale(at::Tensor &out, at::Tensor const &x, double by);
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scale(Tensor! out, Tensor x, float by) -> ()");
  ops.impl("scale", at::kCUDA, &scale);
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
""",
    "torch-ext/scale/__init__.py": """from ._ops import ops

def scale(out, x, by):
    ops.scale(out, x, by)

__all__ = ["scale"]
""",
    "scale.cu": """#include <torch/all.h>

__global__ void scale_kernel(float *out, const float *x, float by, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) {
    out[i] = by * x[i];
  }
}

void scale(at::Tensor &out, at::Tensor const &x, double by) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == at::kFloat, "float on a GPU");
  TORCH_CHECK(out.sizes() == x.sizes(), "out and x differ");
  int64_t n = x.numel();
  scale_kernel<<<(n + 255) / 256, 256>>>(out.data_ptr<float>(), x.data_ptr<float>(), by, n);
}
""",
}


def build(folder: Path, cache: Path, headers: str, archs: list[str]) -> dict[str, Any]:
    """What one build tells: the log of the unit, and digests of its object and dependencies."""
    project, own = folder / "scale", folder / headers
    shutil.rmtree(project, ignore_errors=True)
    for name, text in FILES.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    own.mkdir()
    (own / "store").symlink_to(cache / "store")
    env = {
        **os.environ,
        "KBUILD_CACHE_DIR": str(own),
        "KBUILD_DRIVER": "local",
        "KBUILD_PRECOMPILED_HEADERS": headers,
    }
    options = ["--variant", VARIANT, "-j", "1", "--quiet", "--keep-all"]
    options += [word for arch in archs for word in ("--arch", arch)]
    cpu_seconds([sys.executable, "-m", "kbuild", "build", str(project), *options], env)
    log = project / ".kbuild" / "report" / "units.jsonl"
    units = (json.loads(line) for line in log.read_text().splitlines())
    unit = next(unit for unit in units if unit.get("language") == "CUDA")
    [target] = (project / ".kbuild" / VARIANT / "tree").rglob("scale.cu.o")
    record = Path(f"{target}.inputs").read_text().replace(str(own), "cache")
    inputs = [row.split("\t")[-1] for row in record.splitlines()]
    return {
        "cpu seconds": unit["user"] + unit["system"],
        "seconds": unit["end"] - unit["start"],
        "peak MiB": unit["peak"],
        "architectures": unit["archs"],
        "shared": unit.get("shared_passes", 0),
        "object": hashlib.sha256(target.read_bytes()).hexdigest(),
        "inputs": hashlib.sha256("\n".join(inputs).encode()).hexdigest(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=cache_folder(os.environ))
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, shared = (
            build(Path(folder), args.cache, headers, args.arch) for headers in ("off", "3G")
        )
    differing = [name for name in ("object", "inputs") if plain[name] != shared[name]]
    if differing:
        sys.exit(f"other than nvcc's own: {', '.join(differing)}\n{plain}\n{shared}")
    what = f"torch/all.h, {plain['architectures']} archs / nvcc"
    ratio = shared["cpu seconds"] / plain["cpu seconds"]
    targets = [{"what": what, "value": ratio, "target": TARGET}]
    result = {"nvcc": plain, "kbuild": shared, "targets": targets}
    if args.save:
        save("device_passes", result)
    print(json.dumps(result, indent=1) if args.json else table(targets))


if __name__ == "__main__":
    main()
