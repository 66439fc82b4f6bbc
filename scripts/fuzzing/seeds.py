"""Documents and texts to start from."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fuzzing.common import EXAMPLES, IDENTIFIER, NAME, SHA, VARIANT

METADATA = {
    "name": NAME,
    "id": IDENTIFIER,
    "version": 1,
    "kernels-minver": "0.17.0",
    "license": "apache-2.0",
    "source": "https://example.org/a/b",
    "python-depends": ["einops"],
    "kernel-depends": [{"repo-id": "org/a", "version": 1}],
    "backend": {"type": "cpu", "archs": ["8.0"]},
    "digest": {"algorithm": "sha256", "files": {"__init__.py": "YQ==", "a/b.so": "YQ=="}},
    "provenance": {
        "kernel-builder": {
            "version": "0.1.0",
            "name": "kbuild",
            "sha": "0" * 40,
            "dirty": False,
            "toolchain": {"source": "host", "versions": {"c++": "12"}},
            "sandbox": "",
        },
        "kernel": {"sha": "0" * 40, "dirty": True},
    },
}
WHEEL = {"filename": "torch-2.13.0-cp310-x.whl", "sha256": SHA, "size": 9, "record": SHA}
TOOLKIT = {"version": "13.0.1", "programs": [WHEEL], "libraries": [WHEEL]}
RELEASE = {"version": "2.13.0", "wheels": [WHEEL]}
TABLE = {
    "format": 1,
    "device": "NVIDIA H200",
    "arch": "sm_90",
    "driver": "1",
    "versions": {"triton": "3.6"},
    "rows": [
        {
            "kernel": "gemm",
            "op": "gemm",
            "launch": 0,
            "dtypes": {"a": "float16"},
            "key": [1, 2],
            "constants": {"BLOCK": 64},
            "options": {"num_warps": 4},
            "us": 1.5,
            "default_us": 2.5,
        }
    ],
}
OUTCOME = {"times": {"0": 1.5}, "failed": {"1": "why"}, "wrong": {}, "default": 0, "error": ""}
RESULTS = {
    "results": [
        {
            "workload": f"Relu.{name}",
            "verified": True,
            "timingResults": {
                "mean_ms": 0.2,
                "std_ms": 0.01,
                "iterations": 9,
                "ref_mean_ms": reference,
            },
        }
        for name, reference in (("small", 0.3), ("large", 1.5))
    ],
    "machineInfo": {"gpu": "G", "backend": "CUDA 13.0", "pytorchVersion": "2.13.0"},
    "kernelCommitSha": "1a2b3c4",
}
UNIT = {
    "unit": "a.cpp",
    "variant": VARIANT,
    "language": "CXX",
    "start": 1.0,
    "end": 2.5,
    "status": 0,
    "cache": "miss",
    "user": 1.0,
    "peak": 12,
}
ACCOUNT = {
    "name": "me",
    "orgs": [{"name": "o", "roleInOrg": "write"}],
    "auth": {
        "accessToken": {
            "role": "fineGrained",
            "fineGrained": {"scoped": [{"entity": {"name": "o"}, "permissions": ["repo.write"]}]},
        }
    },
}


def description_seeds() -> Sequence[bytes]:
    """What `kbuild build --keep-all` writes for an example."""
    import tomli

    from kbuild.ops.manifest import ManifestKernel, OpManifest
    from kbuild.ops.section import read_section

    found = []
    for name in ("rmsnorm-triton", "gemm-triton"):
        document = tomli.loads((EXAMPLES / name / "build.toml").read_text())
        kernels = []
        for kernel, table in document["kernel"].items():
            section = read_section(kernel, table)
            launches = [one for op in section.ops for one in op.launches]
            candidates = tuple(one.candidates[:3] for one in launches)
            kernels.append(ManifestKernel(section, candidates))
        found.append(OpManifest(IDENTIFIER, tuple(kernels), (("triton", "3.6"),)).text().encode())
    return found


def image_seeds() -> Sequence[bytes]:
    parameter = {"name": "x", "kind": "pointer", "type": "*fp32"}
    image = {"language": "triton", "arch": "sm_90", "kind": "cubin", "entry": "k", "shared": 0}
    image |= {"parameters": [parameter], "threads": 128, "cluster": [1, 1, 1], "tensor_maps": []}
    image |= {"divisible": ["x"], "ones": [], "scratch_align": 1, "constants": {"B": 64}}
    return [json.dumps(image).encode()]


NIX = (
    (
        'warning: x\n{"offered": {"a": {"derivation": "/d", "output": "/o"}}, '
        '"refused": {"b": "c"}}\n@nix {"action":"msg","level":0,'
        '"msg":"\\u001b[31merror:\\u001b[0m at /x/flake.nix:3:1: no",'
        '"raw_msg":"no","file":"/x/flake.nix","line":3}\n@nix {"action":"start","id":1,"type":105,'
        '"fields":["/nix/store/x-a.drv"],"level":3,"text":"t"}\n'
    ),
    '{"sandbox": {"value": true}, "build-users-group": {"value": "nixbld"}}',
    "error: path '/nix/store/0123456789abcdfghijklmnpqrsvwxyz-source/a.nix' does not exist\n",
)
CXX = (
    (
        "#include <torch/library.h>\n#define NAME my_kernel\nTORCH_LIBRARY(my_kernel, ops) {\n"
        '  ops.def("relu(Tensor x) -> Tensor");\n}\n#if 0\n#else\nR"x(raw)x" // c\n#endif\n'
        'TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) { ops.impl("relu", &relu); }\n'
        'static const char* kName = "a" "b"; auto lib = torch::Library(kName);\n'
        "#define OPEN(ns, ...) TORCH_LIBRARY(ns, m) { __VA_ARGS__ }\nOPEN(x, y)\n"
    ),
)
PYTHON = (
    (
        '"""A kernel."""\nimport torch\nfrom . import layers\nfrom ._ops import ops\n'
        "from ._ops import add_op_namespace_prefix\n\n__all__ = ['relu', *layers.__all__]\n\n\n"
        "@torch.library.custom_op(add_op_namespace_prefix('relu'), mutates_args=())\n"
        "def relu(x: torch.Tensor, *, out: 'torch.Tensor | None' = None) -> torch.Tensor:\n"
        "    return ops.relu(x)\n\n\nNAMES = {'a': f'ns::{1}'}\nfor name in NAMES.values():\n"
        "    torch.library.define(name, '(Tensor x) -> Tensor')\nlib = torch.library.Library('ns', "
        "'DEF')\nclass Relu(torch.nn.Module):\n    def forward(self, x, /, *a, **k):\n"
        "        return [y for y in x if (z := y)]\nmatch x:\n    case [1, *rest]: pass\n"
    ),
)
DOCS = (
    (
        "Relu.\n\nArgs:\n    x: a tensor\n        of numbers.\n\nReturns:\n    Another.\n\n"
        "Parameters\n----------\ny : int, optional\n    Some.\n\n>>> relu(x)\n"
    ),
)
LOOK = [1, 2, 3, 4, "ab"]
EXPRESSIONS = (
    "cdiv(M, BLOCK) * (N if N % 16 == 0 else 1)",
    "size(a, 0) + stride(x, -1) // 2 > 0 and not b <= -3 or M % 7 == 1",
    "min(a, max(b, 2), 3) - 4",
)
SCHEMAS = (
    "gemm(Tensor a, Tensor(a!) b, *, float? c=1.5, int[2] s=[1, 2], str m='x') -> (Tensor, int)",
    "f(Tensor[] xs, bool b=True, ScalarType? t=None, Device d='cpu') -> Tensor(a!)",
)
