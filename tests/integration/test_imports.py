"""Promises to a module that is imported: a table of forms, for a build and for a capture."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kbuild.dsl.devices import device_facts, vendor_facts
from kbuild.ops.unit import ImageTarget
from kbuild.system.errors import BuildError
from tests.support.capture_worker import worker_answers
from tests.support.dsl.triton_kernels import VERSION, TritonProject, shop
from tests.support.stores import dsl_store, shared_folder, warm_cache

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs Torch"),
]
AUTHOR = """\
import functools
import math
import sys
import types

import torch
import triton
import triton.language as tl

WARPS, GRID = 4, 1 << 20
{text}


@triton.jit
def k(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def f(x):
    y = torch.empty_like(x)
    {body}
    blocks = min(GRID, triton.cdiv(x.numel(), 256))
    k[(blocks,)](x, y, x.numel(), B=256, num_warps=WARPS)
    return y
"""
IS_NEW = "torch.cuda.get_device_capability() >= (9, 0)"
BY_ARCH = {"8.0": 4, "9.0": 8}
PLAIN = {"": 4}


@dataclass(frozen=True)
class Form:
    text: str
    warps: dict[str, int] = field(default_factory=lambda: PLAIN)
    """Arch -> the warps of the captured launch; an empty arch stands for all of them."""
    body: str = "pass"
    """A line of the captured function."""
    refused: str = ""
    """By both workers."""
    captured: str = ""
    """How the capture alone refuses it."""
    line: str = ""
    """Part of the line that is refused, where that is not the first of `text`."""
    grid: str = ""


COUNT = "COUNT = torch.cuda.get_device_properties(0).multi_processor_count"
DRIVER = "triton.runtime.driver.active"
NAMES = "torch.cuda.get_device_name()"
FORMS = {
    "capability": Form(f"WARPS = 8 if {IS_NEW} else 4", BY_ARCH),
    "capability of a device": Form(
        "WARPS = 8 if torch.cuda.get_device_capability(torch.device('cuda', 0))[0] > 8 else 4",
        BY_ARCH,
    ),
    "a helper": Form(f"def new():\n    return {IS_NEW}\nif new():\n    WARPS = 8", BY_ARCH),
    "a cached helper": Form(
        f"@functools.lru_cache\ndef new():\n    return {IS_NEW}\nWARPS = 8 if new() else 4", BY_ARCH
    ),
    "kept properties": Form(
        "PROPERTIES = torch.cuda.get_device_properties(0)", {"8.0": 4, "9.0": 4},
        "assert PROPERTIES.major >= 8",
    ),
    "target": Form(f"WARPS = 8 if {DRIVER}.get_current_target().arch >= 90 else 4", BY_ARCH),
    "shared memory": Form(
        f"MOST = {DRIVER}.utils.get_device_properties(0)['max_shared_mem']\n"
        "WARPS = 8 if MOST > 200000 else 4",
        BY_ARCH,
    ),
    "availability": Form("if not torch.cuda.is_available():\n    raise ImportError('no GPU')"),
    "a count": Form(f"{COUNT}\nGRID = COUNT", {"8.0": 4, "9.0": 4}, grid="sm_count()"),
    "computed from a count, not used": Form(f"{COUNT}\nTWICE = COUNT * 2", {"8.0": 4, "9.0": 4}),
    "computed from a count": Form(
        f"{COUNT}\nGRID = COUNT * 2", captured="multi_processor_count` differs among the devices",
        line="blocks = min",
    ),
    "decided by a count": Form(
        f"{COUNT}\nWARPS = 8 if COUNT > 100 else 4", line="if COUNT",
        refused="multi_processor_count` differs among the devices",
    ),
    "name": Form(
        f"WARPS = 8 if '100' in {NAMES} else 4", refused=r"WARPS` depends on `.*get_device_name",
    ),
    "release": Form("NEW = tuple(map(int, torch.version.cuda.split('.'))) >= (12, 0)"),
    "a release that matters": Form(
        "WARPS = 8 if tuple(map(int, torch.version.cuda.split('.'))) >= (13, 1) else 4",
        refused=r"WARPS` depends on `torch\.version\.cuda`",
    ),
    "a kept release": Form(
        "RELEASE = torch.version.cuda", body="assert RELEASE > '11'", line="assert RELEASE",
        captured=r"decides on `torch\.version\.cuda`",
    ),
    "a patch that happens once": Form(
        "assert not hasattr(math, 'patched')\nmath.patched = True\n"
        "NEW = torch.version.cuda.startswith('1') and torch.__version__ >= '2.4'"
    ),
    "a wrapper around a library's function": Form(
        "triton.cdiv = functools.wraps(triton.cdiv)(lambda *args, own=triton.cdiv: own(*args))\n"
        "NEW = torch.version.cuda and torch.version.cuda.startswith('1')\n"
    ),
    "memory of the GPU": Form(
        "X = torch.empty(3, device='cuda')", captured="it uses the GPU when it is imported"
    ),
    "below a main guard": Form("if __name__ == '__main__':\n    torch.empty(3, device='cuda')"),
    "a launch": Form(
        "@triton.jit\ndef z(x):\n    pass\nz[(1,)](1)", line="z[(1,)]",
        refused="`z` is launched on import, but a build has no GPU",
    ),
    "a device guard": Form(
        "on_device = torch.cuda.device", body="on_device(x.device).__enter__()"
    ),
    "an alias in a default": Form(
        "def index(of=torch.cuda.current_device):\n    return of()", body="index()"
    ),
    "a setting of the compiler that is raised": Form(
        "import torch._dynamo\nCONFIG = torch._dynamo.config\n"
        "CONFIG.recompile_limit = max(64, CONFIG.recompile_limit)"
    ),
    "an object that answers nothing": Form(
        "class Odd:\n    def __getattr__(self, name): raise RuntimeError(name)\nODD = Odd()\n"
        "NEW = torch.version.cuda.startswith('1')"
    ),
    "a module that is loaded late": Form(
        "class Late(types.ModuleType):\n    def __getattr__(self, name):\n"
        "        import absent_module\nLATE = sys.modules['late'] = Late('late')\n"
        "NEW = torch.version.cuda.startswith('1')"
    ),
}  # fmt: skip


def source(form: Form) -> str:
    return AUTHOR.format(text=form.text, body=form.body)


def line_of(form: Form) -> int:
    lines = source(form).splitlines()
    part = form.line or form.text.splitlines()[0]
    return 1 + next(at for at, line in enumerate(lines) if part in line)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = dsl_store(f"triton-{VERSION}", "triton", tmp_path_factory)
    return warm_cache(shared_folder(tmp_path_factory) / "imports-cache", store, tmp_path_factory)


@pytest.fixture(scope="module")
def bench(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonProject]:
    with shop(cache, tmp_path_factory.mktemp("built")) as found:
        yield found


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The answers for each form: one for all archs, or one for each where it asks for the arch."""
    modules = {f"author{at}.py": source(form) for at, form in enumerate(FORMS.values())}
    general = vendor_facts("cuda")
    arguments = {"x": {"shape": ["N"], "dtypes": ["float32"], "contiguous": True}}
    requests = {
        name: {
            "function": f"author{at}:f", "arguments": arguments, "device": general,
            "random_calls": 0,
        }
        for at, name in enumerate(FORMS)
    }  # fmt: skip
    found = worker_answers(modules, requests, tmp_path_factory)
    devices = {
        arch: {**device_facts(ImageTarget.parse(target), ""), **general}
        for arch, target in (("8.0", "sm_80"), ("9.0", "sm_90"))
    }
    again = {
        f"{name}-{arch}": {**requests[name], "device": device}
        for name, answer in found.items()
        if answer.get("asked")
        for arch, device in devices.items()
    }
    by_arch = worker_answers(modules, again, tmp_path_factory)
    return {
        name: {arch: by_arch[f"{name}-{arch}"] for arch in devices}
        if answer.get("asked")
        else {"": answer}
        for name, answer in found.items()
    }


@pytest.mark.parametrize("name", FORMS)
def test_a_build(bench: TritonProject, name: str) -> None:
    form = FORMS[name]
    files = {"k.py": source(form)}
    if not form.refused:
        for target in ("sm_80", "sm_90a") if form.warps != PLAIN else ("sm_90a",):
            assert "k" in bench.describe(files, target)
        return
    with pytest.raises(BuildError, match=form.refused) as caught:
        bench.describe(files, "sm_90a")
    assert str(caught.value).startswith(f"kernel.k: k.py:{line_of(form)}: ")


@pytest.mark.parametrize("name", FORMS)
def test_a_capture(captured: dict[str, Any], name: str) -> None:
    form, answers = FORMS[name], captured[name]
    if refused := form.refused or form.captured:
        for answer in answers.values():
            assert re.search(refused, answer.get("error", "")), answer
            assert re.search(rf"author\d+\.py:{line_of(form)}$", answer["place"]), answer
        return
    launches = {arch: list(launches_of(answer)) for arch, answer in answers.items()}
    warps = {
        arch: {one["options"]["num_warps"]["int"] for one in launches[arch]} for arch in launches
    }
    assert warps == {arch: {str(number)} for arch, number in form.warps.items()}
    for found in launches.values():
        assert any(form.grid in json.dumps(launch["grid"]) for launch in found), found


def launches_of(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    assert "error" not in answer, answer
    for run in answer["runs"]:
        for trace in run["traces"]:
            assert not trace["raises"], trace
            yield from (step for step in trace["steps"] if "launch" in step)
