from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbuild.project.matrix import matrix_entries
from kbuild.system.errors import ToolchainError
from kbuild.toolchains.wheels.frameworks import TVM_FFI_PROJECT
from kbuild.toolchains.wheels.lock import (
    LOCK_FILE,
    LockedRelease,
    LockedWheel,
    ToolchainLock,
    headers_digest,
    packaged_lock,
    read_lock,
)

SHA256 = re.compile(r"[0-9a-f]{64}")


def test_packaged_lock_is_as_it_would_be_written() -> None:
    assert packaged_lock().dumps() == LOCK_FILE.read_text()


def test_packaged_lock_names_no_place() -> None:
    assert not re.search(r"https?:|file:|\.org|\.com|/", LOCK_FILE.read_text())


def test_packaged_lock_has_every_torch_of_the_matrix() -> None:
    lock = packaged_lock()
    assert {str(entry.torch) for entry in matrix_entries()} <= set(lock.torch)
    for release, torch in lock.torch.items():
        assert torch.version.startswith(f"{release}.")
        assert torch.wheels[0].record
        assert {wheel.version.split("+")[0] for wheel in torch.wheels} == {torch.version}


def test_packaged_lock_has_every_tvm_ffi_of_the_matrix() -> None:
    lock = packaged_lock()
    wanted = {str(entry.tvm_ffi) for entry in matrix_entries() if entry.tvm_ffi}
    assert wanted == set(lock.tvm_ffi)
    for release, locked in lock.tvm_ffi.items():
        assert locked.version.startswith(f"{release}.")
        assert SHA256.fullmatch(locked.wheels[0].record or "")
        assert {wheel.project for wheel in locked.wheels} == {TVM_FFI_PROJECT}
        assert lock.pinned[f"tvm-ffi-{release}"] == locked.version


def test_packaged_lock_has_every_cuda_13_of_the_matrix() -> None:
    versions = {entry.backend_version for entry in matrix_entries() if entry.backend == "cuda"}
    wanted = {str(version) for version in versions if version and version.major == 13}
    assert wanted <= set(packaged_lock().cuda)


def test_exact_and_oldest_release() -> None:
    wheel = LockedWheel("torch-2.9.0-py3-none-any.whl", "0" * 64, 1)
    releases = {name: LockedRelease(f"{name}.0", (wheel,)) for name in ("2.9", "2.10", "2.11")}
    lock = ToolchainLock({}, releases)
    assert lock.torch_for("2.10", exact=True) == releases["2.10"]
    assert lock.torch_for("2.8", exact=True) is None
    assert lock.torch_for("2.8", exact=False) == releases["2.9"]
    assert lock.torch_for("2.10", exact=False) == releases["2.10"]
    assert lock.torch_for("2.12", exact=False) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "cuda": {}}'])
def test_no_lock_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock.json").write_text(text)
    with pytest.raises(ToolchainError):
        read_lock(tmp_path / "lock.json")


def test_a_header_set_is_of_headers_alone() -> None:
    digests = {"torch/include/a.h": "A", "torch/lib/libc10.so": "B"}
    assert headers_digest(digests) == headers_digest({**digests, "torch/version.py": "C"})
    assert headers_digest(digests) != headers_digest({**digests, "torch/include/THC/b.cuh": "C"})
    assert headers_digest(digests) != headers_digest({**digests, "torch/include/a.h": "D"})
