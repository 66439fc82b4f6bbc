"""Refresh `kbuild/toolchains/wheels/lock.json`: the newest patch of every release on the index.

    python scripts/refresh_toolchain_lock.py

The index is that of pip's configuration. CUDA releases count from 13 on, with the headers for
Debian's nvcc, and the releases of Torch and TVM-FFI in the build matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kbuild.project.matrix import matrix_entries
from kbuild.system.errors import ToolchainError
from kbuild.system.files import sha256, sha256_of_file
from kbuild.system.processes import LocalRunner
from kbuild.system.temporary import temporary_folder
from kbuild.toolchains.cuda_toolkits import FIRST_CUDA_MAJOR
from kbuild.toolchains.wheels import frameworks
from kbuild.toolchains.wheels.cuda import (
    CROSS_PROGRAMS,
    HEADER_LIBRARIES,
    HEADER_PROGRAMS,
    HEADER_RELEASES,
    LIBRARIES,
    PROGRAMS,
)
from kbuild.toolchains.wheels.lock import (
    LOCK_FILE,
    LockedRelease,
    LockedToolkit,
    LockedWheel,
    ToolchainLock,
    headers_digest,
    packaged_lock,
)
from kbuild.toolchains.wheels.package_index import INDEX_HINT, PackageIndex, WheelFetcher
from kbuild.toolchains.wheels.settings import pip_settings
from kbuild.toolchains.wheels.wheel_file import HttpRangeFile, Wheel, parse_record

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version
    from unearth import Link

_NAMES = {"torch": "Torch", frameworks.TVM_FFI_PROJECT: "TVM-FFI"}
_CUDA_META_PACKAGE = "cuda-toolkit"
_THREADS = 4
HOST_CPU, CROSS_CPUS = "x86_64", ("aarch64",)
"""Processor of the machines that build, and of others that they build for."""


@dataclass(frozen=True)
class _IndexFile:
    """A wheel for this system that the index has."""

    version: Version
    link: Link


@dataclass(frozen=True)
class LockRefresher:
    """Reads an index; writes nothing."""

    fetcher: WheelFetcher
    say: Callable[[str], None] = lambda _: None
    cpu: str = HOST_CPU
    """Processor that the wheels are for."""

    def refresh(
        self,
        old: ToolchainLock,
        torch: Iterable[str],
        ffi: Iterable[str] = (),
    ) -> ToolchainLock:
        """The lock for every CUDA release from 13 on, and for what is named.

        Args:
            old: the pins so far.
            torch: Torch releases `major.minor`.
            ffi: TVM-FFI releases `major.minor`.

        What this index does not have stays pinned: releases, and wheels of an unchanged version.

        Raises:
            ToolchainError: the index cannot be reached, or lacks a part of a release.
        """
        nothing = ToolchainLock({}, {})
        with ThreadPoolExecutor(_THREADS) as pool:
            toolkits = sorted(self._newest(_CUDA_META_PACKAGE).items())
            wanted = [file for (major, _), file in toolkits if major >= FIRST_CUDA_MAJOR]
            cuda = list(pool.map(lambda meta: self._components(meta, PROGRAMS, LIBRARIES), wanted))
            older = [file for _, file in toolkits if _release(str(file.version)) in HEADER_RELEASES]
            runtimes = list(
                pool.map(
                    lambda meta: self._components(meta, HEADER_PROGRAMS, HEADER_LIBRARIES), older
                )
            )
            torch_now = self._releases("torch", old.torch, torch, pool)
            ffi_now = self._releases(frameworks.TVM_FFI_PROJECT, old.tvm_ffi, ffi, pool)
            crossed = {
                cpu: replace(self, cpu=cpu).cross_pins(
                    old.cross.get(cpu, nothing), cuda, torch, ffi, pool
                )
                for cpu in CROSS_CPUS
            }
            crossed = {cpu: pins for cpu, pins in crossed.items() if pins != nothing}
        runtimes_now = _merged(old.runtimes, runtimes)
        return ToolchainLock(_merged(old.cuda, cuda), torch_now, runtimes_now, ffi_now, crossed)

    def cross_pins(
        self,
        old: ToolchainLock,
        cuda: Iterable[LockedToolkit],
        torch: Iterable[str],
        ffi: Iterable[str],
        pool: ThreadPoolExecutor,
    ) -> ToolchainLock:
        """The pins for another processor: of each toolkit the same versions, where it has all."""
        return ToolchainLock(
            _merged(old.cuda, filter(None, pool.map(self._counterpart, cuda))),
            self._releases("torch", old.torch, torch, pool),
            tvm_ffi=self._releases(frameworks.TVM_FFI_PROJECT, old.tvm_ffi, ffi, pool),
        )

    def _counterpart(self, toolkit: LockedToolkit) -> LockedToolkit | None:
        """The wheels that `CROSS_PROGRAMS` names; None where the index lacks one."""
        wheels = []
        for pinned in toolkit.programs:
            if pinned.project in CROSS_PROGRAMS:
                same = (f for f in self._files(pinned.project) if str(f.version) == pinned.version)
                counterpart = next(same, None)
                if counterpart is None:
                    return None
                wheels.append(self._with_record(counterpart.link)[0])
        return LockedToolkit(toolkit.version, tuple(wheels), ())

    def _newest(self, project: str) -> Mapping[tuple[int, int], _IndexFile]:
        """Release -> the newest file of it."""
        newest: dict[tuple[int, int], _IndexFile] = {}
        for file in self._files(project):
            release = (file.version.major, file.version.minor)
            if release not in newest or file.version > newest[release].version:
                newest[release] = file
        return newest

    def _files(self, project: str) -> Iterator[_IndexFile]:
        """Released wheels for the processor on Linux, of any interpreter."""
        from packaging.utils import parse_wheel_filename

        for package in self.fetcher.index.files(project):
            _, version, _, tags = parse_wheel_filename(package.link.filename)
            serves = any(_serves(tag.platform, self.cpu) for tag in tags)
            if serves and not version.is_prerelease:
                yield _IndexFile(version, package.link)

    def _components(
        self, meta: _IndexFile, programs: Iterable[str], libraries: Iterable[str]
    ) -> LockedToolkit:
        from packaging.requirements import Requirement

        with self._peek(self._pin(meta.link), meta.link) as wheel:
            lines = wheel.read(wheel.metadata_name("METADATA")).decode().splitlines()
        texts = [line.partition(":")[2] for line in lines if line.startswith("Requires-Dist:")]
        platform = {"sys_platform": "linux", "platform_machine": self.cpu, "extra": "all"}
        wanted = [
            need
            for need in map(Requirement, texts)
            if need.marker and need.marker.evaluate(platform)
        ]
        ranges = {need.name: need.specifier for need in wanted}
        self.say(f"CUDA {meta.version}")
        newest = partial(self._component, str(meta.version), ranges)
        return LockedToolkit(
            str(meta.version), tuple(map(newest, programs)), tuple(map(newest, libraries))
        )

    def _component(
        self, release: str, ranges: Mapping[str, SpecifierSet], project: str
    ) -> LockedWheel:
        files = [
            file
            for file in self._files(project)
            if project in ranges and file.version in ranges[project]
        ]
        if not files:
            raise ToolchainError(f"the package index has no {project} for CUDA {release}")
        best = max(files, key=lambda file: (file.version, not file.link.is_file))
        return self._with_record(best.link)[0]

    def _releases(
        self,
        project: str,
        old: Mapping[str, LockedRelease],
        wanted: Iterable[str],
        pool: ThreadPoolExecutor,
    ) -> dict[str, LockedRelease]:
        """A framework's releases: those that were pinned, and those that are wanted."""
        names = sorted({*old, *wanted}, key=_key)
        releases = pool.map(lambda name: self._framework(project, name, old.get(name)), names)
        return {name: locked for name, locked in zip(names, releases, strict=True) if locked}

    def _framework(
        self, project: str, release: str, old: LockedRelease | None
    ) -> LockedRelease | None:
        """Files of the newest version; the first is one that every index has."""
        files = [file for file in self._files(project) if _release(str(file.version)) == release]
        if not files:
            return old
        newest = max(file.version for file in files).public
        same = [file for file in files if file.version.public == newest]
        same.sort(key=lambda file: not file.link.is_file)  # the index's own one is taken last
        ordered = sorted({file.link.filename: file for file in same}.values(), key=_preference)
        self.say(f"{_NAMES[project]} {newest}")
        first, record = self._with_record(ordered[0].link)
        wheels = [first, *(self._pin(f.link) for f in ordered[1:])]
        kept = old if old and old.version == newest else None
        names = {wheel.filename for wheel in wheels}
        others = [w for w in kept.wheels if w.filename not in names] if kept else []
        if first.is_for_cpu:
            headers = kept.headers if kept else None
        else:
            headers = headers_digest(parse_record(record))
        return LockedRelease(newest, (*wheels, *others), headers)

    @contextmanager
    def _peek(self, locked: LockedWheel, link: Link) -> Iterator[Wheel]:
        """A wheel to look into; nothing is checked but the members' CRC-32."""
        with temporary_folder("wheel") as scratch:
            if link.is_file:
                wheel = Wheel(locked, link.file_path)
            else:
                copy = scratch / "ranges"
                url = link.url_without_fragment
                wheel = Wheel(
                    locked, HttpRangeFile(self.fetcher.index.client, url, locked.size, copy)
                )
            try:
                yield wheel
            finally:
                wheel.close()

    def _pin(self, link: Link) -> LockedWheel:
        return LockedWheel(link.filename, self._digest(link), self._size(link))

    def _with_record(self, link: Link) -> tuple[LockedWheel, bytes]:
        """The pin of a wheel, and its RECORD."""
        pinned = self._pin(link)
        with self._peek(pinned, link) as wheel:
            record = wheel.read(wheel.record_name)
        return replace(pinned, record=sha256(record)), record

    def _digest(self, link: Link) -> str:
        if link.is_file:
            return sha256_of_file(link.file_path)
        digests = (link.hash_option or {}).get("sha256")
        if not digests:
            raise ToolchainError(f"the package index gives no SHA-256 of {link.filename}")
        return digests[0]

    def _size(self, link: Link) -> int:
        if link.is_file:
            return link.file_path.stat().st_size
        from httpx2 import HTTPError

        try:
            headers = {"Accept-Encoding": "identity"}
            response = self.fetcher.index.client.head(link.url_without_fragment, headers=headers)
            response.raise_for_status()
            return int(response.headers["Content-Length"])
        except (HTTPError, KeyError, ValueError) as error:
            what = f"the size of {link.filename} is not known: {error}"
            raise ToolchainError(what, hint=INDEX_HINT) from None


def _merged(
    old: Mapping[str, LockedToolkit], new: Iterable[LockedToolkit]
) -> dict[str, LockedToolkit]:
    both = {**old, **{_release(locked.version): locked for locked in new}}
    return dict(sorted(both.items(), key=lambda item: _key(item[0])))


def _serves(platform: str, cpu: str) -> bool:
    return platform == "any" or ("linux" in platform and platform.endswith(f"_{cpu}"))


def _preference(file: _IndexFile) -> tuple[bool, bool, str]:
    """Builds with a local version such as `+cpu` last, free-threaded ones before them."""
    interpreter = file.link.filename.split("-")[3]
    return file.version.local is not None, interpreter.endswith("t"), file.link.filename


def _release(version: str) -> str:
    return ".".join(version.split("+", maxsplit=1)[0].split(".")[:2])


def _key(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def main() -> int:
    """Write the lock."""
    runner, old = LocalRunner(), packaged_lock()
    entries = matrix_entries()
    ffi = {str(entry.tvm_ffi) for entry in entries if entry.tvm_ffi}
    with PackageIndex(pip_settings(runner)) as index:
        refresher = LockRefresher(WheelFetcher(index), print)
        new = refresher.refresh(old, {str(entry.torch) for entry in entries}, ffi)
    LOCK_FILE.write_text(new.dumps(), "utf-8")
    print(f"{LOCK_FILE} is {'new' if new != old else 'as it was'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
