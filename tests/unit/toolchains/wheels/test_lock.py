from __future__ import annotations

import re

from kbuild.project.matrix import matrix_entries
from kbuild.toolchains.wheels.frameworks import TVM_FFI_PROJECT
from kbuild.toolchains.wheels.lock import (
    LockedRelease,
    LockedWheel,
    ToolchainLock,
    packaged_lock,
)

SHA256 = re.compile(r"[0-9a-f]{64}")


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


def test_exact_and_oldest_release() -> None:
    wheel = LockedWheel("torch-2.9.0-py3-none-any.whl", "0" * 64, 1)
    releases = {name: LockedRelease(f"{name}.0", (wheel,)) for name in ("2.9", "2.10", "2.11")}
    lock = ToolchainLock({}, releases)
    assert lock.torch_for("2.10", exact=True) == releases["2.10"]
    assert lock.torch_for("2.8", exact=True) is None
    assert lock.torch_for("2.8", exact=False) == releases["2.9"]
    assert lock.torch_for("2.10", exact=False) == releases["2.10"]
    assert lock.torch_for("2.12", exact=False) is None
