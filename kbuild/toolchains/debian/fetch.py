"""The pinned packages from a mirror, through apt's own downloader: its proxies, its certificates.

Neither apt's state nor its lists are read or written; what arrives is checked against the pins.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.fileset import sha256_of_file
from kbuild.run import Runner
from kbuild.toolchains.debian.packages import Package, Shelf

MIRROR_VARIABLE = "KBUILD_DEBIAN_MIRROR"
HELPER = Path("/usr/lib/apt/apt-helper")
SANDBOX = ("-o", "APT::Sandbox::User=root")  # the target folder is the user's own
_DEBIAN = re.compile(r"\S+/debian/?")
_GONE = re.compile(r"404\b")


def refuses_download() -> str | None:
    """Why this machine cannot fetch packages; None when it can."""
    if HELPER.is_file() and shutil.which("apt-get"):
        return None
    return "needs apt to fetch Debian's packages"


def find_mirror(
    environ: Mapping[str, str], runner: Runner, instead: str = "install what they hold"
) -> str:
    """The mirror that the user names, else the one that this machine's apt uses for Debian.

    Raises:
        ToolchainError: apt has no Debian mirror configured.
    """
    asked = environ.get(MIRROR_VARIABLE)
    if asked:
        return asked.rstrip("/")
    done = runner.run(("apt-get", "indextargets", "--format", "$(REPO_URI)"))
    found = [line for line in done.output.split() if _DEBIAN.fullmatch(line)]
    if not done.ok or not found:
        raise ToolchainError(
            "apt on this machine has no Debian mirror",
            hint=f"set {MIRROR_VARIABLE} to one, or {instead}",
        )
    return found[0].rstrip("/")


def fetch(shelf: Shelf, folder: Path, environ: Mapping[str, str], runner: Runner) -> list[Path]:
    """The packages' files in `folder`; those that are there already are not fetched again.

    Raises:
        ToolchainError: a package is gone from the mirror, or is not the pinned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [package for package in shelf.packages if not _is_there(package, folder)]
    if missing:
        mirror = find_mirror(environ, runner, shelf.instead)
        command = (str(HELPER), *SANDBOX, "download-file", *_wanted(missing, mirror))
        done = runner.run(command, cwd=folder)
        lost = [package for package in missing if not _is_there(package, folder)]
        if lost:
            raise _failure(shelf, lost, mirror, done.output)
    return [folder / package.file for package in shelf.packages]


def _wanted(packages: Sequence[Package], mirror: str) -> list[str]:
    """Address, file, digest, for each."""
    return [
        part
        for package in packages
        for part in (f"{mirror}/{package.path}", package.file, f"SHA256:{package.sha256}")
    ]


def _is_there(package: Package, folder: Path) -> bool:
    file = folder / package.file
    return file.is_file() and sha256_of_file(file) == package.sha256


def _failure(shelf: Shelf, lost: Sequence[Package], mirror: str, output: str) -> ToolchainError:
    named = ", ".join(package.file for package in lost)
    if not _GONE.search(output):
        return ToolchainError(f"{named} could not be fetched from {mirror}:\n{output.strip()}")
    return ToolchainError(
        f"Debian {shelf.suite} has moved on: {mirror} no longer has {named}",
        hint=f"set {MIRROR_VARIABLE} to an archive that keeps old packages, use a newer kbuild, "
        f"or {shelf.instead}",
    )
