"""Examples of the guide to kernel projects: commands, `build.toml`, bindings, the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.checks.ops import check_ops_source

BUILD = """\
[general]
name = "mykernel"
version = 1
backends = ["cuda"]

[general.hub]
repo-id = "myorg/mykernel"

[torch]
src = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]

[kernel.mykernel]
backend = "cuda"
depends = ["torch"]
src = ["mykernel_cuda/mykernel.cu"]
"""
FILES = {
    "build.toml": BUILD,
    "include/shared.h": "#pragma once\n",
    "mykernel_cuda/mykernel.cu": """\
#include <torch/torch.h>

void mykernel(torch::Tensor &out, torch::Tensor const &input) {}
""",
    "torch-ext/torch_binding.h": """\
#pragma once
#include <torch/torch.h>

void mykernel(torch::Tensor &out, torch::Tensor const &input);
""",
    "torch-ext/torch_binding.cpp": """\
#include <torch/library.h>

#include "registration.h"
#include "torch_binding.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("mykernel(Tensor! out, Tensor input) -> ()");
#if defined(CUDA_KERNEL) || defined(ROCM_KERNEL)
  ops.impl("mykernel", torch::kCUDA, &mykernel);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
""",
    "torch-ext/mykernel/__init__.py": """\
from typing import Optional

import torch

from ._ops import ops

__all__ = ["mykernel"]


def mykernel(x: torch.Tensor, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    ops.mykernel(out, x)
    return out
""",
    "tests/test_mykernel.py": """\
import pytest


@pytest.mark.kernels_ci
def test_mykernel():
    pass
""",
}
LICENCE = 'license = "Apache-2.0"\n'


@pytest.fixture
def project(here: Path) -> Path:
    for path, text in FILES.items():
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text)
    return here


def with_option(section: str, line: str) -> str:
    """The `build.toml` with a line at the end of a section, or a section of its own."""
    text = BUILD.replace("[general]\n", f"[general]\n{LICENCE}")
    if f"[{section}]\n" not in text:
        return f"{text}\n[{section}]\n{line}\n"
    return text.replace(f"[{section}]\n", f"[{section}]\n{line}\n")


def test_a_licence_is_needed(project, kbuild):
    """The document's own file has none."""
    answer = kbuild("check-config")
    assert answer.code == 3
    assert "build.toml:1: general.license: is missing" in answer.err
    assert 'hint: write the SPDX name, e.g. `license = "Apache-2.0"`' in answer.err


@pytest.mark.parametrize(
    ("section", "line", "words"),
    [
        ("general", "", ""),
        ("general", 'python-depends = ["einops"]', ""),
        ("general.cuda", 'minver = "12.6"', ""),
        ("general.cuda", 'maxver = "13.0"', ""),
        ("torch", 'minver = "2.11"', "torch.minver: leaves out Torch releases that users may have"),
        ("torch", 'maxver = "2.13"', "torch.maxver: leaves out Torch releases that users may have"),
        ("torch", 'pyext = ["py", "pyi"]', ""),
        ("torch", 'include = ["include"]', ""),
        ("torch", 'stable-abi = "2.11"', ""),
        ("kernel.mykernel", 'include = ["include"]', ""),
        ("kernel.mykernel", 'cuda-capabilities = ["9.0", "10.0", "12.0"]', ""),
        ("kernel.mykernel", 'cuda-flags = ["-O3"]', ""),
        ("kernel.mykernel", 'cxx-flags = ["-O3"]', ""),
    ],
)
def test_what_is_valid(project, kbuild, section, line, words):
    """Sometimes with a warning, besides that about the edition."""
    (project / "build.toml").write_text(with_option(section, line))
    answer = kbuild("check-config")
    assert answer.code == 0, answer.err
    assert "this is an edition 4 file" in answer.err
    assert words in answer.err
    assert f"build.toml is valid, {'2 warnings' if words else '1 warning'}" in answer.err


@pytest.mark.parametrize(
    ("section", "line", "message", "hint"),
    [
        (
            "general",
            'python-depends = ["einops", "nvidia-cutlass-dsl"]',
            "general.python-depends: `nvidia-cutlass-dsl` does not belong here",
            "it goes into `[general.cuda]`",
        ),
        ("general", 'python-depends = ["numpy"]', "`numpy`", "einops"),
        ("kernel.mykernel", 'rocm-archs = ["gfx942"]', "rocm-archs: unknown key", "of rocm"),
        ("kernel.mykernel", 'sycl-flags = ["-O3"]', "sycl-flags: unknown key", "of xpu"),
    ],
)
def test_what_is_refused(project, kbuild, section, line, message, hint):
    text = with_option(section, line)
    (project / "build.toml").write_text(text)
    answer = kbuild("check-config")
    assert answer.code == 3
    at = text.splitlines().index(line) + 1
    (said,) = [one for one in answer.err.splitlines() if one.startswith(f"build.toml:{at}: ")]
    assert message in said
    assert hint in answer.err


@pytest.mark.parametrize(
    ("backend", "line"),
    [("rocm", 'rocm-archs = ["gfx942"]'), ("xpu", 'sycl-flags = ["-O3"]'), ("metal", ""),
     ("cpu", 'cxx-flags = ["-O3"]')],
)  # fmt: skip
def test_other_backends(project, kbuild, backend, line):
    source = {"rocm": "k.cu", "metal": "k.metal"}.get(backend, "k.cpp")
    (project / "mykernel_cuda" / source).touch()
    text = with_option("kernel.mykernel", line).replace('"cuda"', f'"{backend}"')
    (project / "build.toml").write_text(text.replace("mykernel.cu", source))
    answer = kbuild("check-config")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize(
    ("decorator", "severity"),
    [
        ('torch.library.register_fake("mykernel::mykernel")', "error"),
        ('torch.library.register_fake(add_op_namespace_prefix("mykernel"))', None),
        ('some_indirection_for_register_fake("mykernel::mykernel")', "error"),
    ],
)
def test_fake_kernels(project, decorator, severity):
    """An indirection hides nothing."""
    package = project / "torch-ext" / "mykernel"
    text = (package / "__init__.py").read_text()
    text = text.replace("import ops", "import add_op_namespace_prefix, ops")
    text += "some_indirection_for_register_fake = torch.library.register_fake\n\n\n"
    text += f"@{decorator}\ndef mykernel_fake(out, input):\n    return None\n"
    (package / "__init__.py").write_text(text)
    found = check_ops_source(package, "mykernel")
    assert [finding.severity for finding in found] == ([severity] if severity else [])
