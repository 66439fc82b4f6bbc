"""`kbuild test --torch`: virtual environments in the store, each with one release of Torch.

pip installs what a variant's tests need, from where this user's pip is set up to look.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.backends import BACKENDS
from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.plan.metadata import read_metadata
from kbuild.plan.project import Project
from kbuild.plan.selection import VariantChoice, environments, supports_release
from kbuild.project.config.dependencies import distribution_of
from kbuild.project.variant import Variant, host_system
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.processes import Runner
from kbuild.system.store import Recipe
from kbuild.system.version import Version
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.package_index import INDEX_HINT, PackageIndex, WheelFetcher

if TYPE_CHECKING:
    from packaging.version import Version as WheelVersion

_LAYOUT = 1
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_SHOWN_LINES = 8
Variants = Mapping[Variant, Path]


@dataclass(frozen=True)
class TestEnvironment:
    """An environment with one release of Torch."""

    __test__ = False

    torch: str
    """`2.13`, or `2.13.1`."""
    variants: Variants

    @property
    def build(self) -> str:
        """The build of Torch: `cpu`, `cu130`, or `cu` for any CUDA."""
        *_, variant = self.variants
        return variant.compute

    @property
    def requirements(self) -> tuple[str, ...]:
        """The packages that are installed beside Torch."""
        pins = {
            package: f"{package}=={variant.framework_version}.*"
            for variant in self.variants
            if (package := FRAMEWORKS.get(variant.framework).runtime_package) != "torch"
        }
        names = {
            name for path in self.variants.values() for name in read_metadata(path).python_depends
        }
        return ("kernels", "pytest", *pins.values(), *sorted(map(distribution_of, names)))

    def provide(self, installer: WheelInstaller) -> Path:
        """The environment's interpreter; it is installed when it is not in the store.

        Raises:
            ToolchainError: it cannot be installed.
        """
        python = (str(Path(sys.executable).resolve()), platform.python_version())
        inputs = {"layout": _LAYOUT, "python": python, "build": self.build}
        recipe = Recipe("test-torch", self.torch, {**inputs, "packages": self.requirements})
        try:
            entry = installer.ensure_fetched(
                recipe, lambda fetcher: partial(self._install, fetcher, installer.runner)
            )
        except ToolchainError as error:
            raise ToolchainError(
                f"Torch {self.torch} cannot be installed for tests: {error.message}",
                hint=f"{error.hint or INDEX_HINT}; or make an environment and give it to --python",
            ) from None
        return entry.root / "bin" / "python"

    def _install(self, fetcher: WheelFetcher, runner: Runner, root: Path) -> dict[str, Any]:
        """See `kbuild.system.store.MakeEntry`."""
        torch = f"torch=={self._find_torch(fetcher.index)}"
        # Of pip's settings, those that say where packages are: no target folder, no constraint.
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))}
        environ |= fetcher.index.settings.variables
        install = ["-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        for argv in (
            (sys.executable, "-m", "venv", str(root)),
            (str(root / "bin" / "python"), *install, torch, *self.requirements),
        ):
            done = runner.run(argv, env=environ)
            if not done.ok:
                lines = done.output.strip().splitlines()
                errors = [line for line in lines if line.startswith("ERROR")] or lines
                shown = "".join(f"\n    {line}" for line in errors[-_SHOWN_LINES:])
                raise ToolchainError(f"`{argv[2]}` failed:{shown}")
        return {"torch": torch}

    def _find_torch(self, index: PackageIndex) -> WheelVersion:
        """The newest version of the release that the index has for this Python, in the build.

        The local part of a wheel's version names its build. A wheel without one is for CUDA on
        Linux and x86_64, and for whatever the system has elsewhere.

        Raises:
            ToolchainError: there is none, or the index cannot be reached.
        """
        here = set(_versions_here(self.torch, index))
        named = {v for v in here if (v.local or "").replace(".", "").startswith(self.build)}
        is_plain = self.build.startswith("cu") or str(host_system()) != "x86_64-linux"
        fitting = named or {v for v in here if v.local is None and is_plain}
        if fitting:
            return max(fitting)
        other = f", only {', '.join(map(str, sorted(here)))}" if here else ""
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        raise ToolchainError(
            f"the package index has no build of it for `{self.build}` and {python}{other}",
            hint="add an index or a find-links folder that has one",
        )


def _versions_here(release: str, index: PackageIndex) -> Iterator[WheelVersion]:
    """The versions of a release of Torch that have a wheel for this Python."""
    from packaging.specifiers import SpecifierSet
    from packaging.tags import sys_tags
    from packaging.utils import parse_wheel_filename

    wanted, usable = SpecifierSet(f"=={release}.*"), set(sys_tags())
    for package in index.files("torch"):
        _, version, _, tags = parse_wheel_filename(package.link.filename)
        if wanted.contains(version, prereleases=False) and not usable.isdisjoint(tags):
            yield version


def read_environments(
    asked: str, project: Project, variants: Variants, runner: Runner
) -> list[TestEnvironment]:
    """Read `2.11,2.13.1`, `oldest` or `newest`, each once.

    Args:
        asked: what the command line says.
        project: whose tests run.
        variants: what is built.
        runner: asks for GPUs.

    Raises:
        UsageError: it is no version, or none of the variants supports it on this machine.
    """
    here = {
        v: path
        for v, path in variants.items()
        if v.system in (None, host_system()) and BACKENDS.find(v.backend)
    }
    environments = []
    for word in dict.fromkeys(_versions(asked, project, here)):
        release = Version.parse(Version.parse(word).release)
        fitting = {v: path for v, path in here.items() if _supports(v, release)}
        if not fitting:
            names = ", ".join(map(str, variants))
            message = f"--torch: no built variant supports Torch {word} on {host_system()}"
            raise UsageError(message, hint=f"built: {names}")
        environments.append(TestEnvironment(word, _for_one_build(fitting, runner)))
    return environments


def _versions(asked: str, project: Project, variants: Variants) -> Iterator[str]:
    for word in map(str.strip, asked.split(",")):
        if word in ("oldest", "newest"):
            releases = _supported_releases(project, variants)
            if not releases:
                raise UsageError(f"--torch: no built variant is for {host_system()}")
            yield str((min if word == "oldest" else max)(releases))
        elif _VERSION.fullmatch(word):
            yield word
        else:
            hint = "write versions such as 2.13 or 2.13.1, oldest or newest, with commas between"
            raise UsageError(f"--torch: `{word}` is not a version of Torch", hint=hint)


def _supported_releases(project: Project, variants: Variants) -> set[Version]:
    """The releases of the matrix that one of the variants supports."""
    return {
        entry.torch
        for entry in environments(project)
        for variant in variants
        if entry.backend == variant.backend
        and variant.system in (None, entry.system)
        and variant.backend_version in (None, entry.backend_version)
        and _supports(variant, entry.torch)
    }


def _supports(variant: Variant, release: Version) -> bool:
    choice = VariantChoice(variant, variant.framework_version, default=True)
    return variant.is_noarch or supports_release(choice, (release,))


def _for_one_build(variants: Variants, runner: Runner) -> Variants:
    """The variants of one backend: a GPU's of this machine, else the processor's, else the first.

    Only on Linux each backend has a build of Torch of its own; elsewhere the client chooses.
    """
    if host_system().os != "linux":
        return variants
    backends = map(BACKENDS.get, {variant.backend: None for variant in variants})
    chosen = min(backends, key=lambda one: (not one.native_archs(runner), not one.is_plain_cxx))
    return {v: path for v, path in variants.items() if v.backend == chosen.name}
