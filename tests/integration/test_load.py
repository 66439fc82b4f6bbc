"""`kbuild.load` and `load_inline` with a real compiler and Torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.command_project import write_files
from tests.support.stores import dsl_store

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.compile, pytest.mark.torch]

BUILD = """\
[general]
name = "scaled"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/binding.cpp"]
stable-abi = "2.11"

[kernel.scaled]
backend = "cpu"
depends = ["torch"]
src = ["scaled/scaled.cpp"]
"""
BINDING = """\
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include "registration.h"

torch::stable::Tensor scaled(torch::stable::Tensor x);

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("scaled(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("scaled", TORCH_BOX(&scaled));
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
SOURCE = """\
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

torch::stable::Tensor scaled(torch::stable::Tensor x) {
  auto y = torch::stable::empty_like(x);
  for (int64_t at = 0; at < x.numel(); ++at) {
    y.mutable_data_ptr<float>()[at] = 2 * x.const_data_ptr<float>()[at];
  }
  return y;
}
"""
PACKAGE = """\
from ._ops import ops

__all__ = ["scaled"]


def scaled(x):
    return ops.scaled(x)
"""


@pytest.fixture(scope="module")
def environ(cache_folder):
    return {**os.environ, "KBUILD_CACHE_DIR": str(cache_folder), "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def python(environ):
    """Runs code in a new process; returns what it printed."""

    def run(code, *arguments, **variables):
        done = subprocess.run(  # noqa: TID251
            [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
            env={**environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scaled")
    files = {
        "build.toml": BUILD,
        "torch-ext/binding.cpp": BINDING,
        "torch-ext/scaled/__init__.py": PACKAGE,
        "scaled/scaled.cpp": SOURCE,
        "tests/test_scaled.py": (
            "import scaled\nimport torch\n\n\ndef test_scaled(kernel):\n"
            "    assert scaled is kernel\n"
            "    from kernels import get_kernel\n"
            "    local = get_kernel('scaled', version=1)\n"
            "    assert local.scaled is scaled.scaled and 'ops' in dir(local)\n"
            "    assert local.scaled(torch.ones(1)).item() == 2\n"
            "    assert kernel.scaled(torch.ones(2)).tolist() == [2, 2]\n"
        ),
    }
    write_files(folder, files)
    return folder


LOAD = """
    import sys, torch, kbuild
    kernel = kbuild.load(sys.argv[1])
    print(kernel.scaled(torch.tensor([1.0, 2.0])).tolist())
"""


@pytest.mark.quick
def test_load(python, project):
    """Built and imported quietly; unchanged, nothing is imported that a build needs."""
    code = LOAD + "    print('pydantic' in sys.modules)\n"
    first = python(code, project)
    assert first.stdout == "[2.0, 4.0]\nTrue\n"
    assert first.stderr == ""
    assert not (project / "build").exists()
    assert python(code, project).stdout == "[2.0, 4.0]\nFalse\n"


def test_what_a_development_build_compiled_is_not_compiled_again(python, project):
    """`kbuild build --dev`, `kbuild.load` and what `kbuild dev` builds have one op namespace."""
    subprocess.run(  # noqa: TID251
        [sys.executable, "-m", "kbuild", "build", "--dev", project], check=True
    )
    shutil.rmtree(project / "build")
    code = """
        import sys, kbuild
        print(kbuild.load(sys.argv[1], backend="cpu").__name__)
    """
    assert python(code, project).stdout == "scaled_cpu_dev\n"
    lines = (project / ".kbuild" / "report" / "units.jsonl").read_text().splitlines()
    assert {json.loads(line)["cache"] for line in lines} == {"hit"}


def test_an_edit_while_a_kernel_is_loaded(python, project):
    """Two versions of the ops in one process; an error names its line; then the first again."""
    code = """
        import sys, torch, kbuild
        from pathlib import Path
        source = Path(sys.argv[1], "scaled", "scaled.cpp")
        text, x = source.read_text(), torch.ones(1)
        old = kbuild.load(sys.argv[1])
        source.write_text(text.replace("= 2 *", "= 3 *"))
        new = kbuild.load(sys.argv[1])
        print(old.scaled(x).item(), new.scaled(x).item(), kbuild.load(sys.argv[1]) is new)
        source.write_text(text.replace("return y", "return z"))
        try:
            kbuild.load(sys.argv[1])
        except kbuild.BuildError as error:
            print(error)
        source.write_text(text)
        print(kbuild.load(sys.argv[1]).scaled(x).item(), old.scaled(x).item())
    """
    lines = python(code, project).stdout.splitlines()
    assert lines[0] == "2.0 3.0 True"
    assert any("scaled.cpp:9:10: error:" in line for line in lines)
    assert lines[-1] == "2.0 2.0"


def test_the_pytest_plugin(python, project):
    """A test gets the kernel that was just built, as a fixture and by its name."""
    code = """
        import sys, pytest
        arguments = ["-p", "no:cacheprovider", "-p", "kbuild.loading.pytest_plugin", "-q"]
        sys.exit(pytest.main([*arguments, "--kbuild=" + sys.argv[1], sys.argv[1] + "/tests"]))
    """
    assert "1 passed" in python(code, project, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1").stdout


INLINE = '''
    import sys, torch, kbuild
    source = """
    at::Tensor relu(const at::Tensor& x) {
      TORCH_CHECK(x.is_contiguous(), "not contiguous");
      auto y = torch::empty_like(x);
      const float* in = x.data_ptr<float>();
      float* out = y.data_ptr<float>();
      for (int64_t at = 0; at < x.numel(); ++at) out[at] = in[at] > FLOOR ? in[at] : 0;
      return y;
    }
    std::tuple<at::Tensor, double> parts(at::Tensor x, std::optional<at::Tensor> y, int n = 2,
                                         std::vector<int> list = {}, std::string s = "") {
      return {y ? x * *y : x.sin(), n + double(list.size()) + double(s.size())};
    }
    void scale_(at::Tensor& x, float by) { x.mul_(by); }
    std::vector<at::Tensor> both(at::TensorList xs) { return {xs[1], xs[0]}; }
    """
    from kbuild.plugins.inline import load_inline
    def load(floor):
        functions = {"relu": "max(x, 0)", "parts": "", "scale_": "", "both": ""}
        return load_inline("inline_ops", source.replace("FLOOR", floor), functions=functions)
'''


def test_operators_need_none_of_the_headers_that_are_left_out(tmp_path):
    """Each header of an operator of this Torch compiles with those of `inline/light`."""
    import torch

    include = Path(torch.__file__).parent / "include"
    names = {path.name for path in (include / "ATen" / "ops").glob("*_ops.h")}
    names = {name.replace("_ops.h", ".h") for name in names}
    lines = ["#define AT_PER_OPERATOR_HEADERS", "#include <torch/types.h>"]
    lines += [f"#include <ATen/ops/{name}>" for name in sorted(names)]
    assert len(lines) > 1000
    (tmp_path / "all.cpp").write_text("\n".join([*lines, ""]))
    light = ROOT / "templates" / "inline" / "light"
    command = ["c++", "-std=c++20", "-fsyntax-only", "-I", light, "-I", include, "all.cpp"]
    done = subprocess.run(  # noqa: TID251
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr


@pytest.mark.quick
def test_load_inline(python):
    """Types of both directions, gradients and errors of C++."""
    code = (
        INLINE
        + """
    ops, x = load("0"), torch.tensor([-1.0, 2.0])
    assert ops.relu(x).tolist() == [0, 2] and ops.relu.__doc__ == "max(x, 0)"
    y = torch.ones(1, requires_grad=True)
    product, number = ops.parts(y, None)
    product.backward()
    assert number == 2 and torch.allclose(y.grad, y.cos())
    assert ops.parts(x, x, 5, list=[1, 2], s="abc")[1] == 10
    ops.scale_(x, 2)
    assert x.tolist() == [-2, 4] and ops.both([x, y])[1] is x
    for call in (lambda: ops.parts(x, None, n=2**40), lambda: ops.relu(x.new_ones(2, 2).T)):
        try:
            call()
        except (IndexError, RuntimeError) as error:
            print(str(error).splitlines()[0])
    """
    )
    lines = python(code).stdout.splitlines()
    assert "does not fit" in lines[0]
    assert lines[1:] == ["not contiguous"]


def test_a_second_content_beside_the_first(python):
    code = (
        INLINE
        + """
    ops, x = load("0"), torch.tensor([-1.0, 2.0])
    other = load("3")
    print(other.relu(x).tolist(), ops.relu(x).tolist(), load("0") is ops)
    """
    )
    assert python(code).stdout == "[0.0, 0.0] [0.0, 2.0] True\n"
    unchanged = python(
        INLINE + "    print(load('0').relu(torch.ones(1)), 'pydantic' in sys.modules)"
    )
    assert unchanged.stdout == "tensor([1.]) False\n"


def test_an_error_in_a_string(python):
    """The line of the string comes first, with a caret."""
    code = """
        import kbuild
        from kbuild.plugins.inline import load_inline
        try:
            load_inline("wrong", "\\nint f(int n) {\\n  return n +;\\n}", functions="f")
        except kbuild.BuildError as error:
            print(error)
    """
    lines = python(code).stdout.splitlines()
    assert lines[0].startswith("cpp_sources:3:")
    assert lines[1].split("|")[1].strip() == "return n +;"
    assert lines[2].split("|")[1].strip() == "^"


TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def _scale(x, y, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * by, mask=at < n)


def scale(x, by=2.0):
    y = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), by, BLOCK=1024)
    return y


def total(x):
    return x * int(x.sum().item())
"""
CAPTURED = """
    import sys, warnings, torch, kbuild
    from kbuild.plugins.inline import load_inline
    from torch._subclasses.fake_tensor import FakeTensorMode
    x = {"shape": ["N"], "dtypes": ["float32"]}
    def load(names, **more):
        captures = {name: {"arguments": {"x": x}} for name in names}
        return load_inline(
            "scale", "", triton_sources=open(sys.argv[1]).read(), functions=names,
            triton_captures=captures, archs=["9.0"], **more,
        )
    module = load(["scale"])
    print(module.ops.scale.default._schema)
    with FakeTensorMode():
        print(tuple(module.scale(torch.empty(8, device="cuda")).shape))
    try:
        load(["total"], triton_fallback=False)
    except kbuild.KbuildError as error:
        print(error)
"""


@pytest.mark.network
def test_triton_functions_are_compiled_ahead_of_time(python, tmp_path, tmp_path_factory):
    """Without a GPU, and without Triton in this interpreter; what cannot be is an error."""
    store = dsl_store("triton-3.9.0", "triton", tmp_path_factory)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "store").symlink_to(store)
    source = tmp_path / "scale.py"
    source.write_text(TRITON)
    done = python(CAPTURED, source, KBUILD_CACHE_DIR=str(tmp_path / "cache"))
    schema, shape, error = done.stdout.splitlines()
    assert "::scale(Tensor x) -> Tensor" in schema
    assert shape == "(8,)"
    assert error.startswith("triton_sources:19: `total` asks what is in a tensor")
