"""The drivers: kbuild on this machine, or Nix with a derivation for each variant."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild import manual_page
from kbuild.pipeline.nix.flake import (
    FLAKE_FILE,
    EvaluationFailures,
    has_resolved_inputs,
    uses_kbuild,
)
from kbuild.pipeline.nix.program import Nix, find_nix, nix_program
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.services import Services

AUTO, LOCAL, NIX = DRIVER_NAMES = ("auto", "local", "nix")


@dataclass(frozen=True)
class Driver:
    """The driver, and the reason for it."""

    name: str
    reason: str = ""
    """Empty when there was nothing to choose from."""
    nix: Nix | None = None

    def __str__(self) -> str:
        version = f" {self.nix.version}, sandbox {self.nix.sandbox.state}" if self.nix else ""
        return f"driver: {self.name}{version} ({self.reason})"


@dataclass(frozen=True)
class DriverRequest:
    """The options that decide which driver builds."""

    asked: str = AUTO
    local: Sequence[str] = ()
    """Given options that only the local driver has."""
    nix: Sequence[str] = ()
    """Given options that only Nix has."""
    settings: Sequence[str] = ()
    """Arguments about Nix's settings."""

    def driver(
        self, root: Path, services: Services, environ: Mapping[str, str] = os.environ
    ) -> Driver:
        """The driver for a project.

        Raises:
            UsageError: the options belong to different drivers, or the project has no flake.
            ToolchainError: Nix is requested and cannot be used.
        """
        if self.local and self.nix:
            raise UsageError(
                f"{self.local[0]} needs the local driver, but {self.nix[0]} needs Nix",
                hint="leave one of them out",
            )
        if self.asked == NIX and self.local:
            raise UsageError(
                f"{self.local[0]} works only with the local driver, not with --driver nix",
                hint="a derivation sees only the project: write it into build.toml or "
                "the flake, or leave out --driver nix",
            )
        if self.asked == LOCAL and self.nix:
            raise UsageError(
                f"{self.nix[0]} works only with --driver nix, not with the local driver"
            )
        if self.asked == LOCAL:
            return Driver(LOCAL)
        has_flake = uses_kbuild(root)
        if self.asked == NIX or self.nix:
            if not has_flake:
                raise UsageError(
                    f"`{root}` has no {FLAKE_FILE} that uses kbuild, so Nix has nothing to build",
                    hint=f"`kbuild init` writes one; see {manual_page('how-to/build-with-nix.md')}",
                )
            reason = "--driver nix" if self.asked == NIX else f"{self.nix[0]} is Nix's"
            return Driver(NIX, reason, find_nix(services.cache, services.runner, self.settings))
        if not has_flake:
            return Driver(LOCAL)
        return self._default_driver(root, services, environ)

    def _default_driver(self, root: Path, services: Services, environ: Mapping[str, str]) -> Driver:
        """Nix, unless a reason speaks for this machine."""
        if not has_resolved_inputs(root):
            return Driver(LOCAL)  # nobody has built this project with Nix yet
        reason = self._reason_for_local(environ)
        if reason:
            return Driver(LOCAL, reason)
        failures = EvaluationFailures(root, services.cache)
        if failure := failures.remembered():
            return Driver(LOCAL, f"{failure}; --driver nix tries again")
        try:
            nix = find_nix(services.cache, services.runner, self.settings)
        except ToolchainError as error:
            if nix_program() is not None:
                failures.remember(error.message)
            return Driver(LOCAL, error.message)
        return Driver(NIX, f"{FLAKE_FILE} uses kbuild", nix)

    def _reason_for_local(self, environ: Mapping[str, str]) -> str:
        if self.local:
            return f"{self.local[0]} is an option of the local driver"
        if environ.get("IN_NIX_SHELL"):
            return "this is a Nix shell with its own tools"
        if environ.get("NIX_BUILD_TOP"):
            return "this is the build of a derivation"
        if (environ.get("KBUILD_TOOLCHAIN") or AUTO) != AUTO:
            return "KBUILD_TOOLCHAIN names a toolchain of this machine"
        return ""
