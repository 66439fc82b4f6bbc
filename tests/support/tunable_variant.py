"""A variant for tuning whose ops run on the processor: what a launcher registers, in Python."""

from __future__ import annotations

import json
from pathlib import Path

from kbuild.ops.manifest import MANIFEST_FILE, ManifestKernel, OpManifest
from tests.support.sections import read

NAMESPACE = "_tunable_cpu_1"
SECTION = """\
[kernel.k]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]

[[kernel.k.op]]
schema = "scale(Tensor x, float by=2.0) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float32"]
grid = [1]
key = ["N"]
configs = [
  { HOW = "slow" },
  { HOW = "fast" },
  { HOW = "wrong" },
  { HOW = "large" },
  { HOW = "never", when = "N > 1000000" },
  { HOW = "other", archs = ["9.0"] },
]
tune = { sizes = { N = [16, 64] } }
"""
TWO = """
[[kernel.k.op]]
schema = "both(Tensor! x) -> ()"
shapes = { x = ["N"] }
dtypes = ["float32", "float16"]
key = ["N"]
tune = { cases = [{ N = 8 }] }
[[kernel.k.op.launch]]
function = "f"
grid = [1]
configs = [{ HOW = "slow" }, { HOW = "fast" }]
[[kernel.k.op.launch]]
function = "g"
grid = [1]
configs = [{ HOW = "fast" }, { HOW = "slow" }]
"""
CODE = """
import os
import time
from pathlib import Path

import torch

LIBRARY = torch.library.Library("{namespace}", "DEF")
CANDIDATES = {candidates}
CHOSEN = {{}}
PAUSE = {{"slow": 0.003, "wrong": 0.0, "fast": 0.0005}}


def choose(launch, candidate):
    assert -1 <= candidate < len(CANDIDATES[launch])
    CHOSEN[launch] = max(candidate, 0)


def act(launch):
    how = CANDIDATES[launch][CHOSEN.get(launch, 0)]["HOW"]
    with Path(__file__).with_name("calls.txt").open("a") as file:
        file.write(f"{{launch}} {{how}}\\n")
    if how == "large":
        raise RuntimeError("needs 300000 bytes of shared memory, the device has 232448\\nmore")
    if how == "crash":
        os._exit(7)
    if how == "broken":
        raise SystemError
    time.sleep(PAUSE[how])
    return 1.0 if how == "wrong" else 0.0


def scale(x, by=2.0):
    return x * by + act(0)


def both(x):
    act(1), act(2)
    x.add_(1)


LIBRARY.define("_kbuild_choose(int launch, int candidate) -> ()")
LIBRARY.define("scale(Tensor x, float by=2.0) -> Tensor")
LIBRARY.define("both(Tensor(a!) x) -> ()")
LIBRARY.impl("_kbuild_choose", choose, "CompositeExplicitAutograd")
LIBRARY.impl("scale", scale, "CPU")
LIBRARY.impl("both", both, "CPU")
"""


def write_variant(folder: Path, text: str = SECTION) -> Path:
    """The variant's folder; `calls.txt` in it gets a line for each launch that ran."""
    reading = read(text)
    assert not [issue for issue in reading.issues if issue.severity == "error"]
    launches = [launch.candidates for op in reading.ops for launch in op.launches]
    kernel = ManifestKernel(reading, tuple(launches))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST_FILE).write_text(
        OpManifest(NAMESPACE, (kernel,), (("triton", "3.9.0"),)).text()
    )
    candidates = [[dict(one.constants) for one in launch] for launch in launches]
    code = CODE.format(namespace=NAMESPACE, candidates=candidates)
    (folder / "__init__.py").write_text(code)
    (folder / "metadata.json").write_text(json.dumps({"name": "k"}))
    return folder


def calls(folder: Path) -> list[str]:
    """`<launch> <how>` of every launch that ran, since this was asked last."""
    file = folder / "calls.txt"
    lines = file.read_text().splitlines() if file.is_file() else []
    file.unlink(missing_ok=True)
    return lines
