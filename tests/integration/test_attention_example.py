"""The kernels of `examples/attention-triton` in Triton's interpreter, beside Torch's attention."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.expand import expand
from kbuild.ops.language import LANGUAGES
from kbuild.ops.model import Candidate
from kbuild.ops.section import read_section
from kbuild.ops.unit import ImageTarget
from kbuild.system.processes import LocalRunner
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller
from tests.support.dsl.triton_kernels import VERSION
from tests.support.stores import dsl_store, shared_folder, warm_cache

pytestmark = [
    pytest.mark.network,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "attention-triton"
ERRORS = """
import json, sys
from types import SimpleNamespace
import torch
from attention_ops import attention_varlen, backward, backward_hopper, rms_norm
from attention_ops.attention import attention
from attention_ops.forward import _attention_forward
from attention_ops.forward_hopper import _attention_forward_described

# What the interpreter has not: a GPU, and the time of a candidate.
torch.cuda.get_device_properties = lambda _: SimpleNamespace(multi_processor_count=3)
torch.cuda.get_device_capability = lambda _: (CAPABILITY, 0)
for kernel in (_attention_forward, _attention_forward_described):
    kernel.configs = kernel.configs[:1]
# Gluon has no interpreter.
backward_hopper.backward = lambda *args: backward.backward(*args[:9], None, *args[9:])
torch.manual_seed(0)


def expected(q, k, v, causal):
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, k, v, is_causal=causal).transpose(-3, -2)


def error(function, reference, *tensors):
    own = [x.detach().requires_grad_() for x in tensors]
    wide = [x.detach().double().requires_grad_() for x in tensors]
    out, theirs = function(*own), reference(*wide)
    grad = torch.randn_like(out)
    results = [out, *torch.autograd.grad(out, own, grad)]
    references = [theirs, *torch.autograd.grad(theirs, wide, grad.double())]
    pairs = zip(results, references, strict=True)
    return max(((a - b).norm() / b.norm()).item() for a, b in pairs)


def heads(rows, count, dim):
    return torch.randn(count, rows, dim, dtype=torch.float16).transpose(0, 1)


def packed(q, k, v):
    return attention_varlen(q, k, v, torch.tensor([0, 5, 5, 6, 146], dtype=torch.int32), 140, True)


def parts(q, k, v):
    split = zip(*(x.split([5, 0, 1, 140]) for x in (q, k, v)), strict=True)
    return torch.cat([expected(*part, True) if len(part[0]) else part[0] for part in split])


x, weight = torch.randn(3, 5, 100, dtype=torch.float16), torch.randn(100, dtype=torch.float16)
errors = {"rms_norm": error(
    rms_norm, lambda x, w: torch.nn.functional.rms_norm(x, (100,), w, 1e-6), x, weight
)}
for causal in (False, True):
    q, k, v = heads(70, 4, 64)[None], heads(70, 2, 64)[None], heads(70, 2, 64)[None]
    errors[f"attention {causal}"] = error(
        lambda q, k, v: attention(q, k, v, causal), lambda q, k, v: expected(q, k, v, causal),
        q, k, v,
    )
dim = 128 if CAPABILITY < 9 else 64
errors["attention_varlen"] = error(
    packed, parts, heads(146, 2, dim), heads(146, 1, dim), heads(146, 1, dim)
)
print(json.dumps(errors))
"""


@pytest.mark.parametrize("capability", [8, 9])
def test_results_and_gradients(
    capability: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of the kernels for every GPU, and of Hopper's kernel for heads of 64."""
    store = dsl_store(f"triton-{VERSION}", "triton", tmp_path_factory)
    cache = warm_cache(shared_folder(tmp_path_factory) / "capture-cache", store, tmp_path_factory)
    runner = LocalRunner()
    environments = DslEnvironments(WheelInstaller(runner, open_store(cache)))
    pins = LANGUAGES.get("triton").environment((f"triton=={VERSION}",), "cuda13")
    places = (str(EXAMPLE), str(environments.provide("triton", pins).root))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(places),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    text = ERRORS.replace("CAPABILITY", str(capability))
    done = runner.run((sys.executable, "-c", text), cwd=tmp_path, env=env)
    assert done.returncode == 0, done.output
    errors = json.loads(done.output.splitlines()[-1])
    assert len(errors) == 4
    assert {name: error for name, error in errors.items() if error > 2e-3} == {}


@pytest.mark.quick
def test_kernels_for_hopper_are_compiled_for_it_alone() -> None:
    """Also where another target has a capability, or none."""
    targets = [ImageTarget.parse(arch) for arch in ("sm_80", "sm_90a", "sm_100a", "gfx942")]
    functions: dict[str, set[str]] = {}
    for name in ("attention", "attention_varlen"):
        data = json.loads((EXAMPLE / "captured" / f"attention.{name}.json").read_text())
        table = {"language": "triton", "toolchain": "triton==3.9.0", "src": ["a.py"]}
        for op in read_section("k", {**table, "op": data["ops"]}).ops:
            candidates = {
                at: launch.candidates or (Candidate((("BLOCK_M", 64), ("BLOCK_N", 64)), ()),)
                for at, launch in enumerate(op.launches)
            }
            for unit in expand(op, targets, candidates):
                functions.setdefault(unit.functions[0], set()).add(unit.target.arch)
    every = {target.arch for target in targets}
    assert functions.pop("_attention_forward") == every
    for name, archs in functions.items():
        is_for_hopper = name.endswith(("_hopper", "_varlen", "_described"))
        assert archs == ({"sm_90a"} if is_for_hopper else every), name
    assert len(functions) == 8
