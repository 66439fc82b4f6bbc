"""Debian packages pinned by digest: fetches and unpacks them.

They are fetched by apt's own downloader, with its proxies and certificates. Neither apt's state
nor its lists are read or written.

They are unpacked without dpkg: a package is an `ar` archive that holds a tar archive. Nothing leads
outside the folder that it is unpacked into: neither a member's path, nor a link, nor a file behind
a link.
"""

from __future__ import annotations

import io
import lzma
import os
import posixpath
import re
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from kbuild.system.errors import ToolchainError
from kbuild.system.files import sha256_of_file
from kbuild.system.processes import Runner
from kbuild.system.untrusted import UnpackLimit, reading

_MAGIC = b"!<arch>\n"
_HEADER = 60
_DATA_MEMBER = "data.tar.xz"
_BLOCK = 1 << 20
_XZ_MEMORY_LIMIT = 256 << 20
"""Bytes that xz may take for its dictionary; its best level takes 65 MB."""
_LONGEST_NAME = 1 << 16

Destination = Callable[[str], str | None]
"""A package's path -> where it goes, or None."""


def unpack_deb(deb: Path, target: Path, destination: Destination) -> None:
    """Write the package's wanted files and symbolic links below `target`.

    Raises:
        ToolchainError: the file is not a Debian package with xz-compressed data, or `destination`
            names a place outside `target`.
        DamagedFileError: the package cannot be read, is too large, or leads out of `target`.
    """
    with deb.open("rb") as file, reading(deb, "a Debian package"):
        length = _seek_data(file, deb)
        allowed = UnpackLimit(deb.name, length)
        data = io.BufferedReader(_XzReader(file, length, allowed), _BLOCK)
        with tarfile.open(fileobj=data, mode="r|", tarinfo=_TarMember) as archive:
            _DebExtraction(archive, target, destination, allowed).run()


class _TarMember(tarfile.TarInfo):
    """A member whose long name, if it has one, is not longer than a name can be."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        # What precedes a member and says more of it is read into memory as a whole.
        headers = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
        names = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
        if self.type in (*headers, *names) and self.size > _LONGEST_NAME:
            raise ValueError(f"a member's name takes {self.size} bytes")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member


class _XzReader(io.RawIOBase):
    """A part of a file, unpacked with xz and counted as it comes out."""

    def __init__(self, file: IO[bytes], length: int, allowed: UnpackLimit) -> None:
        self._file, self._left, self._allowed = file, length, allowed
        self._xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_LIMIT)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """See `io.RawIOBase.readinto`."""
        data = b""
        while not data and not self._xz.eof:
            packed = b""
            if self._xz.needs_input:
                packed = self._file.read(min(_BLOCK, self._left))
                self._left -= len(packed)
                if not packed:
                    raise EOFError("it ends in the middle")
            data = self._xz.decompress(packed, len(buffer))
        self._allowed.add(_DATA_MEMBER, len(data))
        buffer[: len(data)] = data
        return len(data)


class _DebExtraction:
    """The extraction of one package into a folder."""

    def __init__(
        self, archive: tarfile.TarFile, target: Path, destination: Destination, allowed: UnpackLimit
    ) -> None:
        self._archive, self._target, self._destination = archive, target, destination
        self._allowed = allowed
        self._written: dict[Path, str] = {}

    def run(self) -> None:
        """Write everything that is wanted."""
        self._target.mkdir(parents=True, exist_ok=True)
        for member in self._archive:
            self._allowed.enter(member.name)
            place = self._destination(str(PurePosixPath(member.name)))
            if place is not None and not member.isdir():
                self._write(member, _path_below(self._target, place))
        for path, name in self._written.items():
            if path.is_symlink() and not self._holds(path):
                path.unlink()
                raise self._allowed.refusal(name, "it is a link that leads out of the package")

    def _write(self, member: tarfile.TarInfo, place: Path) -> None:
        if self._written.get(place) == member.name:
            raise self._allowed.refusal(member.name, "it is there twice")
        if not self._holds(place.parent):
            raise self._allowed.refusal(member.name, "it lies behind a link that leads out")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            reason = "it lies behind a file, or behind a link that leads nowhere"
            raise self._allowed.refusal(member.name, reason) from None
        if place.is_symlink() or place.exists():
            place.unlink()  # of another package: nothing is written through a link
        self._written[place] = member.name
        if member.issym():
            place.symlink_to(self._link(member, place))
            return
        with self._content(member) as content, place.open("wb") as file:
            shutil.copyfileobj(content, file, _BLOCK)
        if place.stat().st_size != member.size and not member.islnk():
            raise self._allowed.refusal(member.name, f"it does not have the {member.size} bytes")
        place.chmod(0o755 if member.mode & 0o100 else 0o644)

    def _content(self, member: tarfile.TarInfo) -> IO[bytes]:
        """A file's bytes; those of the file that it is another name of."""
        if member.islnk():
            other = self._destination(str(PurePosixPath(member.linkname)).lstrip("/"))
            file = _path_below(self._target, other) if other is not None else None
            if file is None or file not in self._written or file.is_symlink():
                message = f"it is another name of `{member.linkname}`, which is not unpacked"
                raise self._allowed.refusal(member.name, message)
            return file.open("rb")
        is_plain = member.isreg() and not member.issparse()
        content = self._archive.extractfile(member) if is_plain else None
        if content is None:
            raise self._allowed.refusal(member.name, "it is neither a file nor a link")
        return content

    def _link(self, member: tarfile.TarInfo, place: Path) -> str:
        """The target of a link here, where paths are others than in the package."""
        here = place.parent.resolve()
        raw = PurePosixPath(member.linkname)
        if not raw.is_absolute() and self._holds(here / raw):
            return member.linkname
        base = "/" + posixpath.dirname(str(PurePosixPath(member.name)))
        meant = posixpath.normpath(posixpath.join(base, member.linkname)).lstrip("/")
        mapped = self._destination(meant)
        goal = _path_below(self._target.resolve(), meant if mapped is None else mapped)
        return os.path.relpath(goal, here)

    def _holds(self, path: Path) -> bool:
        """True for what is below the folder once links are followed."""
        return path.resolve().is_relative_to(self._target.resolve())


def _seek_data(file: IO[bytes], deb: Path) -> int:
    """Move to the first byte of the data archive, and return its length.

    See deb(5) and ar(5): headers of 60 bytes, even offsets.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ToolchainError(f"{deb} is not a Debian package")
    while len(header := file.read(_HEADER)) == _HEADER:
        name, digits = header[:16].decode("ascii").strip().rstrip("/"), header[48:58].strip()
        if not digits.isdigit():
            raise ValueError(f"`{name}` has no length")
        if name == _DATA_MEMBER:
            return int(digits)
        # Members begin at even offsets.
        file.seek(int(digits) + int(digits) % 2, 1)
    raise ToolchainError(f"{deb} has no {_DATA_MEMBER}, the only kind that kbuild reads")


def _path_below(target: Path, place: str) -> Path:
    if ".." in PurePosixPath(place).parts or place.startswith("/"):
        raise ToolchainError(f"a package contains a path outside its own folder: {place}")
    return target / place


@dataclass(frozen=True)
class DebianPackage:
    """One binary package."""

    name: str
    version: str
    path: str
    """Path of the package on mirrors, relative to their root."""
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """The file's name."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class PackageSet:
    """Packages that are fetched together."""

    suite: str
    packages: tuple[DebianPackage, ...]
    instead: str
    """Remedy for users who cannot have them, as an imperative: `install a CUDA toolkit`."""

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(package.size for package in self.packages)


@dataclass(frozen=True)
class UnpackRules:
    """Rules; the first whose pattern matches a path as a whole decides."""

    rules: tuple[tuple[re.Pattern[str], str], ...]

    @classmethod
    def parse(cls, text: str) -> UnpackRules:
        """Read `layout.toml`."""
        import tomli

        rules = tomli.loads(text)["take"]
        return cls(tuple((re.compile(rule["from"]), rule["to"]) for rule in rules))

    def destination(self, path: str) -> str | None:
        """Destination of a package's file; None if it is not needed."""
        for pattern, target in self.rules:
            match = pattern.fullmatch(path)
            if match is not None:
                return match.expand(target)
        return None


MIRROR_VARIABLE = "KBUILD_DEBIAN_MIRROR"
APT_HELPER = Path("/usr/lib/apt/apt-helper")
APT_SANDBOX_OPTIONS = ("-o", "APT::Sandbox::User=root")  # the target folder is the user's own
_DEBIAN_MIRROR = re.compile(r"\S+/debian/?")
_NOT_FOUND = re.compile(r"404\b")


def missing_downloader_reason() -> str | None:
    """Reason why this machine cannot fetch packages; None if it can."""
    if APT_HELPER.is_file() and shutil.which("apt-get"):
        return None
    return "needs apt to fetch Debian's packages"


def find_mirror(
    environ: Mapping[str, str], runner: Runner, instead: str = "install the programs yourself"
) -> str:
    """The mirror that the user names, else the one that this machine's apt uses for Debian.

    Raises:
        ToolchainError: apt has no Debian mirror configured.
    """
    asked = environ.get(MIRROR_VARIABLE)
    if asked:
        return asked.rstrip("/")
    done = runner.run(("apt-get", "indextargets", "--format", "$(REPO_URI)"))
    mirrors = [line for line in done.output.split() if _DEBIAN_MIRROR.fullmatch(line)]
    if not done.ok or not mirrors:
        raise ToolchainError(
            "apt on this machine has no Debian mirror",
            hint=f"set {MIRROR_VARIABLE} to one, or {instead}",
        )
    return mirrors[0].rstrip("/")


def fetch_packages(
    package_set: PackageSet, folder: Path, environ: Mapping[str, str], runner: Runner
) -> list[Path]:
    """The packages' files in `folder`; those that are there already are not fetched again.

    Raises:
        ToolchainError: a package is gone from the mirror, or is not the pinned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [package for package in package_set.packages if not _is_there(package, folder)]
    if missing:
        mirror = find_mirror(environ, runner, package_set.instead)
        command = (
            str(APT_HELPER),
            *APT_SANDBOX_OPTIONS,
            "download-file",
            *_download_arguments(missing, mirror),
        )
        done = runner.run(command, cwd=folder)
        lost = [package for package in missing if not _is_there(package, folder)]
        if lost:
            raise _failure(package_set, lost, mirror, done.output)
    return [folder / package.file for package in package_set.packages]


def _download_arguments(packages: Sequence[DebianPackage], mirror: str) -> list[str]:
    """Address, file, digest, for each."""
    return [
        part
        for package in packages
        for part in (f"{mirror}/{package.path}", package.file, f"SHA256:{package.sha256}")
    ]


def _is_there(package: DebianPackage, folder: Path) -> bool:
    file = folder / package.file
    return file.is_file() and sha256_of_file(file) == package.sha256


def _failure(
    package_set: PackageSet, lost: Sequence[DebianPackage], mirror: str, output: str
) -> ToolchainError:
    named = ", ".join(package.file for package in lost)
    if not _NOT_FOUND.search(output):
        return ToolchainError(f"{named} could not be fetched from {mirror}:\n{output.strip()}")
    return ToolchainError(
        f"Debian {package_set.suite} has moved on: {mirror} no longer has {named}",
        hint=f"set {MIRROR_VARIABLE} to an archive that keeps old packages, use a newer kbuild, "
        f"or {package_set.instead}",
    )
