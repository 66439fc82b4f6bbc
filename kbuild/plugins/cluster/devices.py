"""The interpreter and the GPUs of a worker, and which process has which GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import sleep
from typing import Any

from kbuild.backends import BACKENDS
from kbuild.system.errors import StorageError
from kbuild.system.temporary import temporary_base

VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that say which GPUs a process sees."""
_PAUSE = 0.1


@dataclass(frozen=True)
class WorkerDevice:
    """One GPU, as the worker's Torch sees it; fields as of `kbuild.dsl.tune.host.Device`."""

    id: str
    """Torch's name: `cuda:0`, also for AMD's."""
    name: str
    """The model."""
    arch: str
    """`sm_90`, `gfx942`."""
    backend: str
    """Backend whose variants run on the GPU."""
    sm_count: int = 0
    driver: str = ""
    uuid: str = ""
    torch: str = ""

    @property
    def capability(self) -> str:
        """The arch as metadata writes it: `9.0`, `gfx942`."""
        number = self.arch.removeprefix("sm_")
        return self.arch if number == self.arch else f"{number[:-1]}.{number[-1]}"

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables with which a process sees this GPU alone, and calls it the first."""
        variable = BACKENDS.get(self.backend).visible_devices
        number = int(self.id.rpartition(":")[2])
        visible = [part.strip() for part in environ.get(variable, "").split(",") if part.strip()]
        return {variable: visible[number] if number < len(visible) else str(number)}


@dataclass(frozen=True)
class WorkerRuntime:
    """The interpreter and the devices with which a worker runs variants."""

    python: str
    """Path of the interpreter."""
    version: str
    """Version of Python."""
    torch: str
    """Version; empty without Torch."""
    kernels: str
    """Version of the client; empty without it."""
    pytest: bool
    devices: tuple[WorkerDevice, ...]

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> WorkerRuntime:
        """Read the object that `to_json` wrote."""
        devices = tuple(WorkerDevice(**device) for device in facts["devices"])
        return cls(**{**facts, "devices": devices})

    def to_json(self) -> dict[str, Any]:
        """The runtime as a JSON object."""
        return asdict(self)


@contextmanager
def held_device(
    devices: Sequence[WorkerDevice],
    environ: Mapping[str, str],
    is_ending: Callable[[], bool] = lambda: False,
) -> Iterator[WorkerDevice]:
    """Wait for one of some GPUs that no other process of this user on this machine holds.

    Raises:
        StorageError: the locks cannot be written, or `is_ending` while all are held.
    """
    import fcntl

    folder = Path(temporary_base()) / f"kbuild-devices-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    # The folder has a known name in a folder where everybody can write.
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise StorageError(f"`{folder}` belongs to another user")
    while not is_ending():
        for device in devices:
            ((variable, value),) = device.environment(environ).items()
            # A measurement of `kbuild tune` holds the lock of that name as well.
            name = device.uuid or f"{variable}-{value.replace(os.sep, '_')}"
            handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            try:
                yield device
            finally:
                os.close(handle)
            return
        sleep(_PAUSE)
    raise StorageError("ended while it waited for a GPU")
