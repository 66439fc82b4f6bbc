"""Refresh `kbuild/checks/data/torch_exports*.json`: what the libraries in Torch's wheels export.

    python scripts/refresh_torch_exports.py [--check] [--cuda] [--cpu CPU] [RELEASE...]

Reads the wheels of kbuild's lock that pip's settings lead to, one of each build (`+cpu`, none).
The file has the releases that are named, and without any all that are pinned. Of a wheel on a
server only the libraries are fetched, about 130 MB, and with `--cuda` those for CUDA, about 350 MB
more. Without them, nothing is said of what Torch for CUDA does not export.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from kbuild.checks.policies import EXPORTS_BY_CPU, symbol_digest
from kbuild.checks.readers.elf import read_elf
from kbuild.checks.readers.symbols import is_std_symbol
from kbuild.system.processes import LocalRunner
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.lock import (
    LockedRelease,
    LockedWheel,
    ToolchainLock,
    packaged_lock,
)
from kbuild.toolchains.wheels.package_index import WheelFetcher
from kbuild.toolchains.wheels.wheel_file import HttpRangeFile, Wheel

DATA = Path(__file__).parent.parent / "kbuild/checks/data"
ABOUT = (
    "What the libraries in Torch's wheels for Linux export (scripts/refresh_torch_exports.py). "
    "`names`: sorted 32-bit digests as differences, then the mask of each, packed. A mask has a "
    "bit for each release (in the order of `releases`) and group: `any` build, or builds for a "
    "backend. `openmp`: versions of the libgomp.so.1 in the wheel."
)
GROUPS = ("any", "cuda")
SMALL = re.compile(r"torch/lib/lib(?:torch|torch_cpu|torch_python|c10|c10_cuda|gomp)\.so(?:\.\d+)?")
LARGE = re.compile(r"torch/lib/libtorch_cuda(?:_linalg)?\.so")
OPENMP = "libgomp.so.1"
_MORE, _PAYLOAD, _STEP = 0x80, 0x7F, 7


def lock_of(cpu: str) -> ToolchainLock:
    """The pins for a processor."""
    lock = packaged_lock()
    return lock.cross.get(cpu, lock)


def builds(release: LockedRelease, fetcher: WheelFetcher) -> Iterator[LockedWheel]:
    """A wheel of each build of the release that there is."""
    links = {package.link.filename for package in fetcher.index.files("torch")}
    found: dict[str, LockedWheel] = {}
    for wheel in release.wheels:
        if wheel.filename in links:
            found.setdefault(wheel.version.partition("+")[2], wheel)
    yield from found.values()


def unpack(wheel: LockedWheel, fetcher: WheelFetcher, folder: Path, *, cuda: bool) -> list[Path]:
    """The libraries of one wheel, each byte checked against its RECORD."""
    link = next(p.link for p in fetcher.index.files("torch") if p.link.filename == wheel.filename)
    url, ranges = link.url_without_fragment, folder / "ranges"
    source = (
        link.file_path
        if link.is_file
        else HttpRangeFile(fetcher.index.client, url, wheel.size, ranges)
    )
    opened, target = Wheel(wheel, source), folder / wheel.filename
    target.mkdir()
    try:
        opened.unpack(target, lambda name: name if is_wanted(name, cuda=cuda) else None)
    finally:
        opened.close()
    return sorted(path for path in target.rglob("*") if path.is_file())


def is_wanted(name: str, *, cuda: bool) -> bool:
    """True for a library whose names are kept."""
    return bool(SMALL.fullmatch(name) or (cuda and LARGE.fullmatch(name)))


def versions(library: Path) -> list[str]:
    """Version names that a library defines, its own file name left out."""
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_d")
        names = {aux.name for _, auxes in section.iter_versions() for aux in auxes}
    return sorted(names - {library.name})


def document(cpu: str, releases: list[str], fetcher: WheelFetcher, *, cuda: bool) -> dict[str, Any]:
    """The whole file."""
    pins = lock_of(cpu).torch
    names = defaultdict[int, int](int)
    told = {}
    for place, release in enumerate(releases):
        read = _Read(pins[release].version, place * len(GROUPS), names)
        for wheel in builds(pins[release], fetcher):
            print(wheel.filename, file=sys.stderr)
            read.wheels.append(wheel.filename)
            with tempfile.TemporaryDirectory() as folder:
                for path in unpack(wheel, fetcher, Path(folder), cuda=cuda):
                    read.take(path)
        if not read.wheels:
            raise SystemExit(f"Torch {release}: no pinned wheel is there")
        told[release] = read.to_json()
    head = {"about": ABOUT, "cpu": cpu, "groups": GROUPS}
    return {**head, "releases": told, **packed(names)}


@dataclass
class _Read:
    """What was read of one release."""

    version: str
    first_bit: int
    names: dict[int, int]
    """Of all releases."""
    wheels: list[str] = field(default_factory=list)
    libraries: set[str] = field(default_factory=set)
    openmp: list[str] = field(default_factory=list)

    def take(self, library: Path) -> None:
        """Read one library."""
        if library.name == OPENMP:
            self.openmp = versions(library)
            return
        self.libraries.add(library.name)
        group = GROUPS.index("cuda") if "cuda" in library.name else 0
        for symbol in read_elf(library).exported:
            if not is_std_symbol(symbol.name):
                self.names[symbol_digest(symbol.name)] |= 1 << (self.first_bit + group)

    def to_json(self) -> dict[str, Any]:
        """As the file has it."""
        libraries = sorted(self.libraries)
        told = {"version": self.version, "wheels": self.wheels, "libraries": libraries}
        return {**told, "openmp": self.openmp}


def packed(names: dict[int, int]) -> dict[str, Any]:
    """Digests with their masks, see `kbuild.checks.policies.unpack_exports`."""
    masks = [mask for mask, _ in Counter(names.values()).most_common()]
    differences, before = bytearray(), 0
    for name in sorted(names):
        difference, before = name - before, name
        while difference > _PAYLOAD:
            differences.append(difference & _PAYLOAD | _MORE)
            difference >>= _STEP
        differences.append(difference)
    which = bytes(masks.index(names[name]) for name in sorted(names))
    text = base64.b85encode(zlib.compress(bytes(differences) + which, 9)).decode()
    return {"count": len(names), "masks": masks, "names": text}


def main() -> int:
    """Write the file; with `--check`, say whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--cpu", choices=EXPORTS_BY_CPU, default="x86_64")
    parser.add_argument("releases", nargs="*")
    given = parser.parse_args()
    target = DATA / f"{EXPORTS_BY_CPU[given.cpu]}.json"
    cache = Path(tempfile.mkdtemp(prefix="torch-exports-"))
    with WheelInstaller(LocalRunner(), open_store(cache)).fetcher() as fetcher:
        releases = given.releases or [*lock_of(given.cpu).torch]
        text = json.dumps(document(given.cpu, releases, fetcher, cuda=given.cuda), indent=1) + "\n"
    if given.check:
        same = target.read_text("utf-8") == text
        print(f"{target.name} is {'up to date' if same else 'stale'}")
        return 0 if same else 1
    target.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
