"""A project with kernels in Triton, and what drives it."""

from __future__ import annotations

from tests.support.command_project import CommandProject, write_files

BUILD = """\
[general]
name = "adder"
version = 1
edition = 5
license = "MIT"
backends = [{backends}]

[torch]
{torch}

[kernel.add]
backend = [{backends}]
language = "triton"
toolchain = "triton==3.9.0"
src = ["dsl/add.py"]
{archs}

[[kernel.add.op]]
schema = "add(Tensor x, Tensor y) -> Tensor"
shapes = {{ x = ["..."], y = "x", out = "x" }}
dtypes = ["float16", "float32"]
contiguous = true
let = {{ n = "numel(x)" }}
configs = [{{ BLOCK = 64, num_warps = 2, when = "n < 100" }}, {{ BLOCK = 1024, num_warps = 4 }}]
grid = ["cdiv(n, BLOCK)"]
{more}
"""
KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + y, mask=at < n)
"""
PACKAGE = """\
import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["add"]


def add(x, y):
    return ops.add(x, y)


def _backward(ctx, gradient):
    return gradient, gradient


torch.library.register_autograd(add_op_namespace_prefix("add"), _backward)
"""
CUDA_ARCHS = 'cuda-capabilities = ["8.0+PTX"]'
STABLE = 'stable-abi = "2.11"'
VARIANT = "torch-stable-abi211-cu130-x86_64-linux"


def write_adder(
    bench: CommandProject,
    *,
    backends: str = '"cuda"',
    torch: str = STABLE,
    archs: str = CUDA_ARCHS,
    more: str = "",
) -> CommandProject:
    """The project, committed."""
    text = BUILD.format(backends=backends, torch=torch, archs=archs, more=more)
    files = {
        "build.toml": text,
        "dsl/add.py": KERNEL,
        "torch-ext/adder/__init__.py": PACKAGE,
        ".gitignore": "build/\n.kbuild/\n",
    }
    write_files(bench.root, files)
    bench.commit()
    return bench


def loaded(variant: str, code: str) -> str:
    """A program that has the variant as `kernel`, as the client would load it, and goes on."""
    return f"""\
import importlib.util, sys
import torch

def load(name):
    place = {variant!r}
    where = [place]
    spec = importlib.util.spec_from_file_location(
        name, place + "/__init__.py", submodule_search_locations=where
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

kernel = load("adder_1234")
{code}
"""
