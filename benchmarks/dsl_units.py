"""How long eight configurations of a matrix product take in TileLang and in CuTe DSL.

python benchmarks/dsl_units.py               measure and print
python benchmarks/dsl_units.py --save        also write benchmarks/results/dsl_units.json

The kernels are those of `examples/gemm-tilelang` and `examples/gemm-cute`, for Hopper and bfloat16:
eight objects each, compiled by one worker and by two. The start of the interpreters and the import
of the DSLs count, the installation of these does not. The last figure is the same again with all of
it kept: what an unchanged project costs. `units.py` says how it is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli
from report import save, table
from units import Kernel, measure, missed

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
UNITS = 8
FASTER = 1.7
"""How many times faster two workers are to be."""
AT_ONCE = 0.5
"""Seconds that eight kept units may take."""
CUTE = [
    {"width": width, "stages": stages, "cluster": cluster, "group": group, "aligned": True}
    for width, stages, cluster, group in (
        *((256, 4, 2, 8), (256, 4, 1, 8), (256, 4, 2, 4), (256, 3, 2, 8)),
        *((128, 6, 2, 8), (128, 6, 1, 8), (128, 6, 2, 4), (64, 8, 1, 8)),
    )
]
CONFIGS: Mapping[str, Any] = {"gemm-tilelang": None, "gemm-cute": CUTE}
"""Example -> its candidates; None stands for those of its first launch."""


def kernel_of(example: str) -> Kernel:
    """The example's kernel with one dtype, one launch, and eight candidates."""
    text = (EXAMPLES / example / "build.toml").read_text("utf-8")
    section = tomli.loads(text)["kernel"]["gemm"]
    op = {**section["op"][0], "dtypes": ["bfloat16"]}
    if "launch" in op:
        op["launch"] = op["launch"][:1]
    if CONFIGS[example] is not None:
        op["configs"] = CONFIGS[example]
    return Kernel("gemm", {**section, "op": [op]})


def main() -> int:
    """Exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (default: 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--cache", type=Path, help="kbuild's cache (default: an empty one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = arguments.cache or Path(folder, "cache")
        found = {
            name: measure(kernel_of(name), cache, EXAMPLES / name, arguments.rounds, UNITS)
            for name in CONFIGS
        }
    targets = [
        {"what": f"{name}: two workers / one", "value": 1 / one["ratio"], "target": 1 / FASTER}
        for name, one in found.items()
    ]
    targets += [
        {"what": f"{name}: {UNITS} kept units, s", "value": one["kept"], "target": AT_ONCE}
        for name, one in found.items()
    ]
    result = {"units": UNITS, "rounds": arguments.rounds, **found, "targets": targets}
    if arguments.save:
        save("dsl_units", result)
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        for name, one in found.items():
            print(f"{name}: {one['one_worker']} s, two workers {one['two_workers']} s")
        print(table(targets))
    return int(missed(targets))


if __name__ == "__main__":
    sys.exit(main())
