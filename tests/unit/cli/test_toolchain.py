from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbuild.__main__ import main
from tests.support.toolkit_wheels import fill
from tests.support.wheel_index import serve

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler for link stubs"),
]
PINNED = {"cuda-13.0": "13.0.3.0", "torch-2.14": "2.14.1", "tvm-ffi-0.1": "0.1.15.post2"}
Toolchain = Callable[..., Any]


@pytest.fixture
def toolchain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Toolchain]:
    """`toolchain("list")` runs `kbuild toolchain list --json`; returns code and answer."""
    shelf, lock_file = tmp_path / "shelf", tmp_path / "lock.json"
    lock_file.write_text(fill(shelf).dumps())
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("KBUILD_ACCEPT_LICENSE", raising=False)
    with serve(shelf) as served:
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.url}/simple")

        def run(*arguments: str) -> tuple[int, Any]:
            code = main(["toolchain", *arguments, "--json", "--lock-file", str(lock_file)])
            out = capsys.readouterr().out
            return code, json.loads(out) if out.startswith("{") else out

        yield run


def test_list_before_and_after_install(toolchain: Toolchain) -> None:
    code, answer = toolchain("list")
    assert code == 0
    assert answer == {"pinned": {**PINNED, "debian-nvcc": "12.4.131"}, "installed": []}
    code, answer = toolchain("install", *PINNED)
    assert code == 0
    names = [entry["name"] for entry in answer["installed"]]
    versions = ["cuda-13.0.3.0", "torch-2.14.1", "tvm-ffi-0.1.15.post2"]
    assert [name.rpartition("-")[0] for name in names] == versions
    _, answer = toolchain("list")
    assert [entry["name"] for entry in answer["installed"]] == names
    assert all(entry["size"] > 0 and entry["used"] for entry in answer["installed"])


def test_verify_finds_damage(toolchain: Toolchain) -> None:
    _, answer = toolchain("install", "torch-2.14")
    (entry,) = answer["installed"]
    assert toolchain("verify") == (0, {"ok": True, "entries": {entry["name"]: []}})
    header = Path(entry["path"], "torch/include/torch/library.h")
    header.chmod(0o644)
    header.write_text("// changed\n")
    code, answer = toolchain("verify", entry["name"])
    assert code == 4
    assert answer["entries"][entry["name"]] == ["`torch/include/torch/library.h` was changed"]


def test_prune(toolchain: Toolchain) -> None:
    _, answer = toolchain("install", "torch-2.14")
    name = answer["installed"][0]["name"]
    assert toolchain("prune")[1]["removed"] == []
    assert toolchain("prune", "--all", "--dry-run")[1] == {"removed": [name], "dry_run": True}
    assert toolchain("prune", "--all")[1]["removed"] == [name]
    assert toolchain("list")[1]["installed"] == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("install", "rocm-7.1"), 4),
        (("install", "cuda-12.6"), 4),
        (("install", "cuda-"), 4),
        (("install", "debian-nvcc"), 4),  # nobody has accepted its licence
        (("verify", "nothing"), 2),
        (("list", "cuda-13.0"), 2),
    ],
)
def test_wrong_words(toolchain: Toolchain, arguments: tuple[str, ...], code: int) -> None:
    assert toolchain(*arguments)[0] == code
