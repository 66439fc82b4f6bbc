"""Folders that are wrong: missing and stray files, metadata, digests, sizes, loading."""

from __future__ import annotations

import json
from pathlib import Path

from seeded_recipe import GOOD, INIT, Case, on

from kbuild.checks import Limits

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
    Case(
        "no _ops.py",
        "a file that the client needs is missing",
        "layout",
        "is missing",
        on(PLAIN, spoil=_without_ops),
        also=("metadata",),
    ),
    Case(
        "__pycache__",
        "bytecode left in the folder",
        "layout",
        "is bytecode",
        on(PLAIN, spoil=_leftover),
    ),
    Case(
        "link out",
        "a symbolic link out of the folder",
        "layout",
        "leads out",
        on(PLAIN, spoil=_link),
    ),
    Case(
        "too big",
        "more than `--max-size 4K`",
        "size",
        "and the limit is 4.0 KB",
        PLAIN,
        limits=Limits(max_size=4096),
    ),
)
METADATA = (
    Case(
        "wrong digest",
        "another hash in `metadata.json`",
        "metadata",
        "`__init__.py` differs from the digest",
        on(PLAIN, spoil=_wrong_hash),
    ),
    Case(
        "changed after the digest",
        "a file edited later",
        "metadata",
        "`__init__.py` differs from the digest",
        on(PLAIN, spoil=_changed),
    ),
    Case(
        "added after the digest",
        "a file added later",
        "metadata",
        "`later.py` is not in the digest",
        on(PLAIN, spoil=_added),
    ),
    Case(
        "another id",
        "`id` that no extension has",
        "layout",
        "no extension is named `_relu_cpu_fffffff.*`",
        on(PLAIN, metadata={"id": "_relu_cpu_fffffff"}),
    ),
    Case(
        "another backend",
        "`backend.type` that is not the variant's",
        "metadata",
        "`backend.type` is `cuda`, but the variant is for cpu",
        on(PLAIN, metadata={"backend": "cuda"}),
    ),
    Case(
        "refused by the client",
        "a name that `kernels` refuses",
        "metadata-client",
        "",
        on(PLAIN, spoil=_refused),
        also=("metadata",),
    ),
)
CRASH = "__attribute__((constructor)) static void seeded() { __builtin_trap(); }\n"
LOADING = (
    Case(
        "crash on load",
        "the library ends the process that loads it",
        "load",
        "cannot be loaded",
        on(PLAIN, source=CRASH),
    ),
    Case(
        "raises on import",
        "`__init__.py` takes an op that there is not",
        "load",
        "cannot be loaded",
        on(PLAIN, python={"__init__.py": "from ._ops import ops\n\nrelu = ops.gone\n"}),
    ),
)
FOLDERS = (*FILES, *METADATA, *LOADING)
