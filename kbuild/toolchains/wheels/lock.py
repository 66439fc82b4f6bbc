"""The pins: which wheels make a CUDA toolkit, which a framework or headers can be taken from.

`lock.json` names files, sizes and digests, never where they are: that is the index's business.
`sha256` pins a whole file. `record` pins the wheel's RECORD, and with it every single member, so
that what is fetched piecemeal is as certain as what is fetched whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.version import Version

LOCK_FORMAT = 1
LOCK_FILE = Path(__file__).with_name("lock.json")


@dataclass(frozen=True)
class LockedWheel:
    """One wheel file."""

    filename: str
    sha256: str
    size: int
    """Bytes."""
    record: str | None = None
    """SHA-256 of its RECORD; without it only the whole file can be checked."""

    @property
    def project(self) -> str:
        """Normalised project name (PEP 503)."""
        return self.filename.split("-")[0].replace("_", "-").lower()

    @property
    def version(self) -> str:
        """The version as the file name has it."""
        return self.filename.split("-")[1]


@dataclass(frozen=True)
class LockedToolkit:
    """One CUDA release, or its headers and runtime without a compiler."""

    version: str
    """Release of the `cuda-toolkit` meta-package that names the components."""
    programs: tuple[LockedWheel, ...]
    """Wheels that are unpacked: compiler, runtime, headers."""
    libraries: tuple[LockedWheel, ...]
    """Wheels of which only the headers are taken; link stubs stand for the libraries."""


@dataclass(frozen=True)
class LockedRelease:
    """One release of a framework: any of the wheels will do, the first is the one to fetch from."""

    version: str
    wheels: tuple[LockedWheel, ...]


@dataclass(frozen=True)
class Lock:
    """All pins, by release: `13.0`, `2.14`."""

    cuda: Mapping[str, LockedToolkit]
    torch: Mapping[str, LockedRelease]
    headers: Mapping[str, Mapping[str, LockedWheel]] = field(default_factory=dict)
    """Name of the headers (`sycl`) -> release -> the wheel that has them."""
    runtimes: Mapping[str, LockedToolkit] = field(default_factory=dict)
    """CUDA releases whose wheels have no compiler: what an nvcc from elsewhere is used with."""
    tvm_ffi: Mapping[str, LockedRelease] = field(default_factory=dict)

    @property
    def pinned(self) -> dict[str, str]:
        """`cuda-13.0`, `torch-2.14`, `tvm-ffi-0.1` -> the version that is pinned."""
        kinds: dict[str, Mapping[str, LockedToolkit | LockedRelease | LockedWheel]] = {
            "cuda": self.cuda,
            "torch": self.torch,
            "tvm-ffi": self.tvm_ffi,
            **self.headers,
        }
        return {
            f"{kind}-{release}": locked.version
            for kind, releases in kinds.items()
            for release, locked in releases.items()
        }

    def toolkit(self, release: str) -> LockedToolkit | None:
        """The CUDA release `major.minor`."""
        return self.cuda.get(release)

    def torch_for(self, release: str, *, exact: bool) -> LockedRelease | None:
        """That Torch release; without `exact` the oldest one from it on."""
        if exact:
            return self.torch.get(release)
        floor = Version.parse(release)
        newer = [found for found in map(Version.parse, self.torch) if found >= floor]
        return self.torch[str(min(newer))] if newer else None

    def dumps(self) -> str:
        """The text of `lock.json`."""
        return json.dumps({"format": LOCK_FORMAT, **asdict(self)}, indent=1) + "\n"


@cache
def packaged_lock() -> Lock:
    """The lock that kbuild comes with."""
    return read_lock(LOCK_FILE)


def read_lock(path: Path) -> Lock:
    """Read a lock file.

    Raises:
        ToolchainError: it is missing, no lock, or of another format.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["format"] != LOCK_FORMAT:
            raise ToolchainError(f"`{path}`: format {data['format']}, this kbuild reads 1")
        return Lock(
            {release: _toolkit(entry) for release, entry in data["cuda"].items()},
            {release: _release(entry) for release, entry in data["torch"].items()},
            {name: _headers(entry) for name, entry in data.get("headers", {}).items()},
            {release: _toolkit(entry) for release, entry in data.get("runtimes", {}).items()},
            {release: _release(entry) for release, entry in data.get("tvm_ffi", {}).items()},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolchainError(f"`{path}` is no lock file: {error}") from None


def _toolkit(entry: Mapping[str, Any]) -> LockedToolkit:
    programs, libraries = (_wheels(entry[key]) for key in ("programs", "libraries"))
    return LockedToolkit(entry["version"], programs, libraries)


def _release(entry: Mapping[str, Any]) -> LockedRelease:
    return LockedRelease(entry["version"], _wheels(entry["wheels"]))


def _headers(entry: Mapping[str, Any]) -> dict[str, LockedWheel]:
    return {release: LockedWheel(**wheel) for release, wheel in entry.items()}


def _wheels(entries: list[Mapping[str, Any]]) -> tuple[LockedWheel, ...]:
    return tuple(LockedWheel(**entry) for entry in entries)
