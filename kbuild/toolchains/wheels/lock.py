"""The pins: which wheels make a CUDA toolkit, which a framework can be taken from.

`lock.json` names files, sizes and digests, never where they are: that is the index's business.
`sha256` pins a whole file. `record` pins the wheel's RECORD, and with it every single member, so
that what is fetched piecemeal is as certain as what is fetched whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from kbuild.system.errors import DamagedFileError, ToolchainError
from kbuild.system.untrusted import read_json, reading
from kbuild.system.version import Version

LOCK_FORMAT = 1
LOCK_FILE = Path(__file__).with_name("lock.json")
_WHEEL = re.compile(r"[^/\s-]+(?:-[^/\s-]+)+\.whl")
_HEADERS = re.compile(r"[^/]+/include/.+")
_DIGEST = re.compile(r"[0-9a-f]{64}")


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

    @property
    def pin(self) -> str:
        """The requirement for pip."""
        return f"{self.project}=={self.version}"

    @property
    def is_for_cpu(self) -> bool:
        """True for a build without device code, which lacks some of the others' headers."""
        return self.version.partition("+")[2] == "cpu"


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
    """One release of a framework."""

    version: str
    wheels: tuple[LockedWheel, ...]
    """All but those for the CPU are alike; the first is the one to fetch from."""
    headers: str | None = None
    """The `headers_digest` of each of these wheels, where it is pinned."""

    def split(self) -> tuple[LockedRelease, LockedRelease]:
        """The wheels that are alike, and those that are for the CPU alone."""
        whole = tuple(wheel for wheel in self.wheels if not wheel.is_for_cpu)
        rest = tuple(wheel for wheel in self.wheels if wheel.is_for_cpu)
        return replace(self, wheels=whole), replace(self, wheels=rest, headers=None)


@dataclass(frozen=True)
class ToolchainLock:
    """All pins, by release: `13.0`, `2.14`."""

    cuda: Mapping[str, LockedToolkit]
    torch: Mapping[str, LockedRelease]
    runtimes: Mapping[str, LockedToolkit] = field(default_factory=dict)
    """CUDA releases whose wheels have no compiler: what an nvcc from elsewhere is used with."""
    tvm_ffi: Mapping[str, LockedRelease] = field(default_factory=dict)
    cross: Mapping[str, ToolchainLock] = field(default_factory=dict)
    """Pins for other processors, by processor; their toolkits have what programs there are linked
    with, and no compiler."""

    @property
    def pinned(self) -> dict[str, str]:
        """`cuda-13.0`, `torch-2.14`, `tvm-ffi-0.1` -> the version that is pinned."""
        kinds: dict[str, Mapping[str, LockedToolkit | LockedRelease]] = {
            "cuda": self.cuda,
            "torch": self.torch,
            "tvm-ffi": self.tvm_ffi,
        }
        return {
            f"{kind}-{release}": locked.version
            for kind, releases in kinds.items()
            for release, locked in releases.items()
        }

    def torch_for(self, release: str, *, exact: bool) -> LockedRelease | None:
        """The wheel of that Torch release; without `exact` the oldest one from it on."""
        if exact:
            return self.torch.get(release)
        floor = Version.parse(release)
        newer = [version for version in map(Version.parse, self.torch) if version >= floor]
        return self.torch[str(min(newer))] if newer else None

    def dumps(self) -> str:
        """The text of `lock.json`."""
        return json.dumps({"format": LOCK_FORMAT, **asdict(self)}, indent=1) + "\n"


def headers_digest(digests: Mapping[str, str]) -> str:
    """One digest of all headers among the members of a wheel.

    Args:
        digests: path in the wheel -> SHA-256 as RECORD writes it, urlsafe base64 without padding.
    """
    rows = sorted(
        f"{path}\0{digest}\n" for path, digest in digests.items() if _HEADERS.fullmatch(path)
    )
    return hashlib.sha256("".join(rows).encode()).hexdigest()


@cache
def packaged_lock() -> ToolchainLock:
    """The lock that kbuild comes with."""
    return read_lock(LOCK_FILE)


def read_lock(path: Path) -> ToolchainLock:
    """Read a lock file.

    Raises:
        ToolchainError: it is missing, no lock, or of another format.
    """
    try:
        with reading(path, "a lock file"):
            data = read_json(path, "a lock file")
            if data["format"] != LOCK_FORMAT:
                raise ToolchainError(
                    f"`{path}`: format {data['format']}, this kbuild reads {LOCK_FORMAT}"
                )
            return _lock(data)
    except OSError as error:
        raise ToolchainError(f"`{path}` is not a lock file: {error}") from None
    except DamagedFileError as error:
        raise ToolchainError(error.message) from error


def _lock(data: Mapping[str, Any]) -> ToolchainLock:
    return ToolchainLock(
        {release: _toolkit(entry) for release, entry in data["cuda"].items()},
        {release: _release(entry) for release, entry in data["torch"].items()},
        {release: _toolkit(entry) for release, entry in data.get("runtimes", {}).items()},
        {release: _release(entry) for release, entry in data.get("tvm_ffi", {}).items()},
        {cpu: _lock(pins) for cpu, pins in data.get("cross", {}).items()},
    )


def _toolkit(entry: Mapping[str, Any]) -> LockedToolkit:
    programs, libraries = (map(_wheel, entry[key]) for key in ("programs", "libraries"))
    return LockedToolkit(str(entry["version"]), tuple(programs), tuple(libraries))


def _release(entry: Mapping[str, Any]) -> LockedRelease:
    headers = entry.get("headers")
    if headers is not None and not _DIGEST.fullmatch(headers):
        raise ValueError(f"`{headers}` is not a digest of headers")
    return LockedRelease(str(entry["version"]), tuple(map(_wheel, entry["wheels"])), headers)


def _wheel(entry: Mapping[str, Any]) -> LockedWheel:
    wheel = LockedWheel(**entry)
    if not isinstance(entry["size"], int) or wheel.size < 0:
        raise ValueError(f"`{wheel.filename}` has no size")
    digests = [wheel.sha256, *([] if wheel.record is None else [wheel.record])]
    if not _WHEEL.fullmatch(wheel.filename) or not all(map(_DIGEST.fullmatch, digests)):
        raise ValueError(f"`{wheel.filename}` is not a wheel with its digest")
    return wheel
