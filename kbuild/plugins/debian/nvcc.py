"""The toolchain `debian-nvcc`: CUDA 12 without an installed toolkit.

Debian's nvcc 12.4 compiles, with headers from wheels. Opt-in: the compiler is under NVIDIA's
licence, and its release is not the one that a variant is named after. An installed toolkit of that
release is preferred, see `kbuild.toolchains.cuda_toolkits`.

`scripts/refresh_debian_nvcc.py` writes `data/packages.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from kbuild.plan.plan import Requirements, ToolchainSummary
from kbuild.project.matrix import arch_table
from kbuild.system.errors import ToolchainError
from kbuild.system.files import sha256_of_file
from kbuild.system.processes import Runner
from kbuild.system.store import Recipe, StoreEntry, open_store
from kbuild.system.temporary import temporary_folder
from kbuild.system.version import Version
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.cuda_toolkits import CudaToolkit, StoredCudaToolkits, ToolVersions
from kbuild.toolchains.from_wheels import WheelToolchains
from kbuild.toolchains.host import HostToolchains
from kbuild.toolchains.wheels.cuda import CudaMaker, cuda_recipe
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.lock import LockedToolkit

_DATA = resources.files("kbuild.plugins.debian") / "data"
_DATA_FILES = ("packages.json", "layout.toml", "nvcc.profile")


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

    def is_in(self, folder: Path) -> bool:
        """True if the folder has the package with the pinned content."""
        file = folder / self.file
        return file.is_file() and sha256_of_file(file) == self.sha256


@dataclass(frozen=True)
class DebianNvccPins:
    """Everything of Debian's that a store entry is made from."""

    suite: str
    nvcc: str
    """`12.4.131`."""
    package: DebianPackage
    digest: str
    """SHA-256 over all data files: another digest, another store entry."""

    @property
    def release(self) -> Version:
        """`12.4`."""
        parts = self.nvcc.split(".")
        return Version((int(parts[0]), int(parts[1])))

    @property
    def title(self) -> str:
        """Title for the record."""
        return f"{self.nvcc} (Debian {self.suite})"


@cache
def pins() -> DebianNvccPins:
    """The package that this kbuild was tried with."""
    data = json.loads(data_text("packages.json"))
    (package,) = data["packages"]
    content = "\0".join(data_text(name) for name in _DATA_FILES)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return DebianNvccPins(data["suite"], data["nvcc"], DebianPackage(**package), digest)


def data_text(name: str) -> str:
    """Text of a data file."""
    return (_DATA / name).read_text("utf-8")


@cache
def _rules() -> tuple[tuple[re.Pattern[str], str], ...]:
    import tomli

    rules = tomli.loads(data_text("layout.toml"))["take"]
    return tuple((re.compile(rule["from"]), rule["to"]) for rule in rules)


def destination_of(path: str) -> str | None:
    """The place of a package's file in the prefix; None if it is not needed."""
    matches = ((pattern.fullmatch(path), target) for pattern, target in _rules())
    return next((match.expand(target) for match, target in matches if match), None)


MIRROR_VARIABLE = "KBUILD_DEBIAN_MIRROR"
_APT_HELPER = Path("/usr/lib/apt/apt-helper")
_APT_SANDBOX_OPTIONS = ("-o", "APT::Sandbox::User=root")  # the target folder is the user's own
_DEBIAN_MIRROR = re.compile(r"\S+/debian/?")
_INSTEAD = "install the CUDA toolkit and set CUDA_HOME"


def missing_downloader_reason() -> str | None:
    """Reason why this machine cannot fetch packages; None if it can."""
    if _APT_HELPER.is_file() and shutil.which("apt-get"):
        return None
    return "needs apt to fetch Debian's packages"


def find_mirror(environ: Mapping[str, str], runner: Runner) -> str:
    """The mirror that the user names, else the one that this machine's apt uses for Debian.

    Raises:
        ToolchainError: apt has no Debian mirror configured.
    """
    if asked := environ.get(MIRROR_VARIABLE):
        return asked.rstrip("/")
    done = runner.run(("apt-get", "indextargets", "--format", "$(REPO_URI)"))
    mirrors = [line for line in done.output.split() if _DEBIAN_MIRROR.fullmatch(line)]
    if not done.ok or not mirrors:
        raise ToolchainError(
            "apt on this machine has no Debian mirror",
            hint=f"set {MIRROR_VARIABLE} to one, or {_INSTEAD}",
        )
    return mirrors[0].rstrip("/")


def fetch_package(
    pins: DebianNvccPins, folder: Path, environ: Mapping[str, str], runner: Runner
) -> Path:
    """The package's file in `folder`, fetched by apt's own downloader if it is not there.

    That has the machine's proxies and certificates. Apt's state and lists are not touched.

    Raises:
        ToolchainError: the package is gone from the mirror, or is not the pinned one.
    """
    package = pins.package
    folder.mkdir(parents=True, exist_ok=True)
    if not package.is_in(folder):
        mirror = find_mirror(environ, runner)
        what = (f"{mirror}/{package.path}", package.file, f"SHA256:{package.sha256}")
        command = (str(_APT_HELPER), *_APT_SANDBOX_OPTIONS, "download-file", *what)
        done = runner.run(command, cwd=folder)
        if not package.is_in(folder):
            if not re.search(r"404\b", done.output):
                message = f"{package.file} could not be fetched from {mirror}"
                raise ToolchainError(f"{message}:\n{done.output.strip()}")
            raise ToolchainError(
                f"Debian {pins.suite} has moved on: {mirror} no longer has {package.file}",
                hint=f"set {MIRROR_VARIABLE} to an archive that keeps old packages, use a newer "
                f"kbuild, or {_INSTEAD}",
            )
    return folder / package.file


def unpack_package(deb: Path, root: Path, runner: Runner) -> None:
    """Copy the wanted files of the package to their places below `root`.

    Debian's own program unpacks it. The content is the pinned one, so it is not a hostile archive.

    Raises:
        ToolchainError: it cannot be unpacked, or a wanted file is a link to nothing in it.
    """
    with temporary_folder("deb") as folder:
        done = runner.run(("dpkg-deb", "--extract", str(deb), str(folder)))
        if not done.ok:
            raise ToolchainError(f"{deb} cannot be unpacked:\n{done.output.strip()}")
        for file, place in _wanted_files(folder):
            # A link could lead to a file of this machine, which would then be in the store.
            if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
                raise ToolchainError(f"`{file.relative_to(folder)}` of {deb} leads out of it")
            target = root / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            target.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)


def _wanted_files(folder: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted(folder.rglob("*")):
        place = destination_of(file.relative_to(folder).as_posix())
        # A link to a folder is yielded as well, so that `unpack_package` refuses it.
        if place is not None and (file.is_symlink() or not file.is_dir()):
            yield file, place


LICENCE_VARIABLE = "KBUILD_ACCEPT_LICENSE"
"""Names of licences that the user accepts, separated by commas."""
LICENCE_NAME = "nvidia-cuda-eula"
LICENCE_TITLE = "NVIDIA's End User License Agreement for the CUDA Toolkit"
LICENCE_URL = "https://docs.nvidia.com/cuda/eula/"


_LAYOUT = 2
"""Counts changes of what `make` does with the same inputs."""
_EMPTY_ARCHIVE = b"!<arch>\n"
_DYNAMIC_RUNTIME = "--cudart=shared"  # wheels have no libcudart_static.a


@dataclass(frozen=True)
class DebianNvccToolkits(StoredCudaToolkits):
    """One nvcc for several releases: its code runs with any later runtime of CUDA 12."""

    installer: WheelInstaller
    cache: Path
    """kbuild's cache folder."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    pins: DebianNvccPins = field(default_factory=pins)

    name = "debian-nvcc"

    @property
    def version(self) -> str:
        """See `StoredCudaToolkits.version`."""
        return self.pins.nvcc

    def unsupported_reason(self, release: str) -> str | None:
        """See `CudaToolkitSource.unsupported_reason`."""
        own, wanted = self.pins.release, Version.parse(release)
        if wanted.major != own.major or wanted < own:
            return f"debian-nvcc is for CUDA {own.major}, from {own} on"
        if self._headers is None:
            return f"the lock of toolchains has no headers of CUDA {own}"
        accepted = self.environ.get(LICENCE_VARIABLE, "").split(",")
        if LICENCE_NAME not in map(str.strip, accepted):
            setting = f"set {LICENCE_VARIABLE}={LICENCE_NAME} to accept it"
            licence = f"{LICENCE_TITLE} ({LICENCE_URL})"
            return f"to use nvcc {self.pins.title}, read {licence}, and {setting}"
        is_installed = self._recipe is not None and self.installer.store.find(self._recipe)
        return None if is_installed else missing_downloader_reason()

    def preview(self, release: str) -> ToolVersions:
        """See `CudaToolkitSource.preview`."""
        headers = self._headers
        return (
            ("cuda", f"{headers.version if headers else self.pins.release} headers"),
            ("nvcc", f"{self.pins.title} for a CUDA {release} variant"),
            ("license", f"{LICENCE_NAME}, accepted by {LICENCE_VARIABLE}"),
        )

    def compiler(self, release: str) -> str | None:
        """See `CudaToolkitSource.compiler`."""
        own = str(self.pins.release)
        return None if release == own else own

    def provide(self, release: str) -> CudaToolkit:
        """See `CudaToolkitSource.provide`."""
        reason = self.unsupported_reason(release)
        if reason is not None:
            raise ToolchainError(reason)
        root = self.install().root
        versions, notes = self.preview(release), (self._note(release),)
        return CudaToolkit(
            self.name, root, root / "bin" / "nvcc", versions, _DYNAMIC_RUNTIME, notes
        )

    def install(self) -> StoreEntry:
        """The store entry, made when it is not there.

        Raises:
            ToolchainError: the licence is not accepted, or something cannot be fetched.
        """
        reason = self.unsupported_reason(str(self.pins.release))
        headers, recipe = self._headers, self._recipe
        if reason is not None or headers is None or recipe is None:
            raise ToolchainError(str(reason))
        there = self.installer.store.find(recipe)
        if there is not None:
            return there.touch()
        with self.installer.fetcher() as fetcher:
            wheels = CudaMaker(headers, fetcher, self.installer.stubs)
            return self.installer.ensure(recipe, lambda root: self._make(root, wheels))

    def _make(self, root: Path, wheels: CudaMaker) -> dict[str, Any]:
        """Fill the prefix; see `kbuild.system.store.MakeEntry`."""
        runner, package = self.installer.runner, self.pins.package
        facts = wheels.make(root)
        deb = fetch_package(self.pins, self.cache / "downloads", self.environ, runner)
        unpack_package(deb, root, runner)
        (root / "bin" / "nvcc.profile").write_text(data_text("nvcc.profile"))
        # Relocatable device code is not linked; nvcc names the library all the same.
        (root / "lib" / "libcudadevrt.a").write_bytes(_EMPTY_ARCHIVE)
        source = {
            "filename": package.file,
            "sha256": package.sha256,
            "size": package.size,
            "fetched": package.size,
            "how": "apt",
        }
        return {"sources": [*facts["sources"], source], "license": LICENCE_NAME}

    @property
    def _headers(self) -> LockedToolkit | None:
        return self.installer.lock.runtimes.get(str(self.pins.release))

    @property
    def _recipe(self) -> Recipe | None:
        if self._headers is None:
            return None
        wheels = cuda_recipe(self._headers).to_json()
        inputs = {"layout": _LAYOUT, "debian": self.pins.digest, "wheels": wheels}
        return Recipe("debian-nvcc", self.pins.nvcc, inputs)

    def _note(self, release: str) -> str:
        """The remark on what was used, and which of the release's own archs have no code for it."""
        text = f"compiled by nvcc {self.pins.title} for a CUDA {release} variant"
        own = arch_table("cuda", self.pins.release).targets
        missing = tuple(
            arch.removesuffix("+PTX")
            for arch in arch_table("cuda", Version.parse(release)).default
            if arch.removesuffix("+PTX") not in own
        )
        if not missing:
            return text
        return f"{text}, without code for {', '.join(missing)}: GPUs of that kind cannot run it"


@dataclass(frozen=True)
class DebianNvccToolchains(ToolchainSource):
    """Debian's nvcc for device code, also where a local toolkit would fit; wheels for the rest."""

    wheels: WheelToolchains
    """Has Debian's toolkits and no others."""
    toolkits: DebianNvccToolkits

    name = "debian-nvcc"

    def unsupported_reason(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.unsupported_reason`."""
        if requires.backend != "cuda" or requires.toolkit is None:
            return "debian-nvcc compiles for CUDA only"
        reason = self.toolkits.unsupported_reason(requires.toolkit)
        if reason is not None:
            return f"needs CUDA {requires.toolkit}: {reason}"
        return self.wheels.unsupported_reason(requires)

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """See `ToolchainSource.preview`."""
        return self.wheels.preview(requires)

    def compiler(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.compiler`."""
        return self.wheels.compiler(requires)

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        reason = self.unsupported_reason(requires)
        if reason is not None:
            raise ToolchainError(f"debian-nvcc does not fit: {reason}")
        return self.wheels.provision(requires)


class DebianNvcc:
    """See `kbuild.toolchains.plugins.ToolchainPlugin`."""

    def __call__(self, host: HostToolchains) -> DebianNvccToolchains:
        """The source for a command line."""
        cache, downloads = host.cache.folder, host.downloads
        installer = WheelInstaller(host.runner, open_store(cache), downloads=downloads)
        toolkits = self.cuda_toolkits(installer, cache)
        wheels = WheelToolchains(host.runner, cache, host.python, downloads, others=(toolkits,))
        return DebianNvccToolchains(wheels, toolkits)

    def cuda_toolkits(self, installer: WheelInstaller, cache: Path) -> DebianNvccToolkits:
        """Debian's nvcc for CUDA 12, in kbuild's store."""
        return DebianNvccToolkits(installer, cache)


PLUGIN = DebianNvcc()
