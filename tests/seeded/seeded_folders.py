"""Folders that are wrong: missing and stray files, metadata, digests, sizes, loading."""

from __future__ import annotations

import json
from pathlib import Path

from kbuild.checks import CheckLimits
from tests.seeded.seeded_recipe import GOOD, INIT, Case, Stub, on

PLAIN = GOOD["cpu"]
WRONG_HASH = "A" * 43 + "="


def _without_ops(root: Path) -> None:
    (root / "_ops.py").unlink()


def _changed(root: Path) -> None:
    (root / "__init__.py").write_text(f"{INIT}\n# later\n")


def _added(root: Path) -> None:
    (root / "later.py").write_text("")


def _wrong_hash(root: Path) -> None:
    path = root / "metadata.json"
    data = json.loads(path.read_text())
    data["digest"]["files"]["__init__.py"] = WRONG_HASH
    path.write_text(json.dumps(data))


def _refused(root: Path) -> None:
    path = root / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"name": "A B"}))


def _leftover(root: Path) -> None:
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "relu.cpython-311.pyc").write_bytes(b"\0" * 16)


def _link(root: Path) -> None:
    (root / "data").symlink_to("/usr/share")


FILES = (
    Case("no _ops.py", "a file that the client needs is missing", "layout", "is missing",
        on(PLAIN, spoil=_without_ops), also=("metadata",)),
    Case("__pycache__", "bytecode left in the folder", "layout", "is bytecode",
        on(PLAIN, spoil=_leftover)),
    Case("link out", "a symbolic link out of the folder", "layout", "leads out",
        on(PLAIN, spoil=_link)),
    Case("too big", "more than `--max-size 4K`", "size", "and the limit is 4.0 KB", PLAIN,
        limits=CheckLimits(max_size=4096)),
)  # fmt: skip
METADATA = (
    Case("wrong digest", "another hash in `metadata.json`", "metadata",
        "`__init__.py` differs from the digest", on(PLAIN, spoil=_wrong_hash)),
    Case("changed after the digest", "a file edited later", "metadata",
        "`__init__.py` differs from the digest", on(PLAIN, spoil=_changed)),
    Case("added after the digest", "a file added later", "metadata",
        "`later.py` is not in the digest", on(PLAIN, spoil=_added)),
    Case("another id", "`id` that no extension has", "layout",
        "no extension is named `_relu_cpu_fffffff.*`",
        on(PLAIN, metadata={"id": "_relu_cpu_fffffff"})),
    Case("another backend", "`backend.type` that is not the variant's", "metadata",
        "`backend.type` is `cuda`, but the variant is for cpu",
        on(PLAIN, metadata={"backend": "cuda"})),
    Case("unknown to the client", "`backend.type` that no client knows", "client",
        "does not support the backend `hip`", on(PLAIN, variant="torch213-cxx11-hip-x86_64-linux")),
    Case("refused by the client", "a name that `kernels` refuses", "metadata-client", "",
        on(PLAIN, spoil=_refused), also=("metadata",)),
)  # fmt: skip
CRASH = "__attribute__((constructor)) static void seeded() { __builtin_trap(); }\n"
HIDDEN = """\
import torch

from ._ops import ops

make = getattr(torch.library, "".join(reversed("po_motsuc")))


@make("relu::relu", mutates_args=())
def relu(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0)
"""
LITERAL_NAMESPACE = """\
extern "C" int aoti_torch_library_init_def(const char *, const char *, unsigned, void **);
extern "C" int aoti_torch_library_def(void *, const char *);
__attribute__((constructor)) static void seeded() {
  void *library = nullptr;
  aoti_torch_library_init_def("relu", __FILE__, __LINE__, &library);
  aoti_torch_library_def(library, "relu(Tensor x) -> Tensor");
}
"""
"""As `TORCH_LIBRARY(relu, ops)` does it for the stable ABI."""
LIBTORCH = Stub("libtorch_cpu.so", ("aoti_torch_library_init_def", "aoti_torch_library_def"))
LIES = """

@relu.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((1, 2, 3, 4, 5))
"""
FALLS = INIT.replace("    return x.clamp(min=0)", "    os.abort()").replace(
    "import torch\n", "import os\n\nimport torch\n"
)
LOADING = (
    Case("op: hidden", "through a name that is made at run time", "ops",
        "opens `relu` outside the kernel's namespace", on(PLAIN, python={"__init__.py": HIDDEN}),
        loaded=True),
    Case("op: C++", "`TORCH_LIBRARY(relu, ops)` in the binding", "ops",
        "registers `relu::relu` outside the kernel's namespace",
        on(PLAIN, source=LITERAL_NAMESPACE, stubs=(LIBTORCH,)), loaded=True),
    Case("crash in an op", "an op that ends the process that calls it", "load", "crashed",
        on(PLAIN, python={"__init__.py": FALLS})),
    Case("fake of another shape", "a fake kernel that `torch.compile` would believe", "load",
        "its fake kernel", on(PLAIN, python={"__init__.py": INIT + LIES})),
    Case("crash on load", "the library ends the process that loads it", "load", "cannot be loaded",
        on(PLAIN, source=CRASH)),
    Case("raises on import", "`__init__.py` takes an op that there is not", "load",
        "cannot be loaded",
        on(PLAIN, python={"__init__.py": "from ._ops import ops\n\nrelu = ops.gone\n"})),
)  # fmt: skip
FOLDERS = (*FILES, *METADATA, *LOADING)
