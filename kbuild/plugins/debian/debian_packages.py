"""Debian packages pinned by digest: fetching them, and where their files go.

They are fetched by apt's own downloader, with its proxies and certificates. Neither apt's state
nor its lists are read or written.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kbuild.system.errors import ToolchainError
from kbuild.system.files import sha256_of_file
from kbuild.system.processes import Runner


@dataclass(frozen=True)
class DebianPackage:
    """One binary package."""

    name: str
    version: str
    path: str
    """Where mirrors have it, relative to their root."""
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """The file's name."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class PackageSet:
    """What is fetched together."""

    suite: str
    packages: tuple[DebianPackage, ...]
    instead: str
    """What a user may do who cannot have them, as an imperative: `install a CUDA toolkit`."""

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
        """Where a package's file goes; None when it is not needed."""
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
    """Why this machine cannot fetch packages; None when it can."""
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
    shelf: PackageSet, folder: Path, environ: Mapping[str, str], runner: Runner
) -> list[Path]:
    """The packages' files in `folder`; those that are there already are not fetched again.

    Raises:
        ToolchainError: a package is gone from the mirror, or is not the pinned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [package for package in shelf.packages if not _is_there(package, folder)]
    if missing:
        mirror = find_mirror(environ, runner, shelf.instead)
        command = (
            str(APT_HELPER),
            *APT_SANDBOX_OPTIONS,
            "download-file",
            *_download_arguments(missing, mirror),
        )
        done = runner.run(command, cwd=folder)
        lost = [package for package in missing if not _is_there(package, folder)]
        if lost:
            raise _failure(shelf, lost, mirror, done.output)
    return [folder / package.file for package in shelf.packages]


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
    shelf: PackageSet, lost: Sequence[DebianPackage], mirror: str, output: str
) -> ToolchainError:
    named = ", ".join(package.file for package in lost)
    if not _NOT_FOUND.search(output):
        return ToolchainError(f"{named} could not be fetched from {mirror}:\n{output.strip()}")
    return ToolchainError(
        f"Debian {shelf.suite} has moved on: {mirror} no longer has {named}",
        hint=f"set {MIRROR_VARIABLE} to an archive that keeps old packages, use a newer kbuild, "
        f"or {shelf.instead}",
    )
