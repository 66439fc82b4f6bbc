"""Builds all selected variants with Nix, each as a derivation of the project's flake."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kbuild.pipeline.nix.build import NixBuildCommand
from kbuild.pipeline.nix.flake import Derivation, Flake, FlakeEvaluationError, FlakeVariants
from kbuild.pipeline.nix.store_copy import copy_variant, is_current_copy
from kbuild.pipeline.package import remove_leftovers
from kbuild.pipeline.provenance.files import discard_outdated_attestation
from kbuild.pipeline.result import BuildResult, BuildStatus
from kbuild.plan.metadata import metadata_in
from kbuild.plan.project import Project
from kbuild.plan.selection import Selection, VariantChoice, select_variants
from kbuild.project.variant import System, host_system
from kbuild.system.errors import KbuildError, ToolchainError
from kbuild.system.services import Services
from kbuild.system.workspace import Workspace


class NoDerivationError(ToolchainError):
    """The flake offers none of the selected variants."""

    def __init__(self, project: Project, skipped: Sequence[BuildResult]) -> None:
        reasons = "".join(f"\n    {result.variant}: {result.reason}" for result in skipped)
        super().__init__(
            f"the flake of {project.name} offers none of these variants:{reasons}",
            hint="`kbuild build --driver local` builds without Nix",
        )


def can_fall_back_to_local(error: KbuildError) -> bool:
    """True when nothing is wrong with the project, but Nix cannot build it here."""
    if isinstance(error, FlakeEvaluationError):
        return error.is_out_of_reach
    return isinstance(error, NoDerivationError)


@dataclass(frozen=True)
class NixBuild:
    """One build of a project by Nix."""

    project: Project
    flake: Flake
    selection: Selection
    output: Path | None
    """Folder that gets the variant directories; `build/` in the project when None."""
    services: Services

    def perform(self) -> tuple[BuildResult, ...]:
        """Build the selected variants that the flake offers; skip the others with a reason.

        Raises:
            ToolchainError: the flake offers nothing of it.
            ConfigError: the project's flake is wrong.
            BuildError: Nix fails for a reason that is not a variant's.
            CheckError: a second build gave something else (`--rebuild`).
        """
        began = time.monotonic()
        choices = select_variants(self.project, self.selection)
        offer = self._offer(choices)
        skipped = [
            BuildResult(name, "skipped", self._reason(choice, offer))
            for choice in choices
            if (name := str(choice.variant)) not in offer.variants
        ]
        if not offer.variants:
            raise NoDerivationError(self.project, skipped)
        remove_leftovers(self.project.root, self._folder)
        sandbox = self.flake.nix.sandbox
        if sandbox.warning:
            self.services.ui.warn(sandbox.warning)
        results = {result.variant: result for result in self._build(offer, began)}
        names = (str(choice.variant) for choice in choices)
        return (*(results[name] for name in names if name in results), *skipped)

    def _offer(self, choices: Sequence[VariantChoice]) -> FlakeVariants:
        """The flake's offer, system by system."""
        systems: dict[System, list[str]] = {}
        for choice in choices:
            system = choice.variant.system or host_system()
            if self._is_in_reach(choice, system):
                systems.setdefault(system, []).append(str(choice.variant))
        offers = [self.flake.offer(str(system), names) for system, names in systems.items()]
        return FlakeVariants(
            {name: derivation for offer in offers for name, derivation in offer.variants.items()},
            {name: reason for offer in offers for name, reason in offer.refused.items()},
        )

    def _is_in_reach(self, choice: VariantChoice, system: System) -> bool:
        """True for this machine's system, and for systems that were named: a builder may exist."""
        named = system in self.selection.systems or str(choice.variant) in self.selection.globs
        return named or system == host_system()

    def _reason(self, choice: VariantChoice, offer: FlakeVariants) -> str:
        name, system = str(choice.variant), choice.variant.system
        if name in offer.refused:
            return offer.refused[name]
        if system is not None and not self._is_in_reach(choice, system):
            return (
                f"it is for {system}: `--system {system}` builds it, if Nix has a builder for "
                "that system"
            )
        return "the project's flake does not offer it"

    def _build(self, offer: FlakeVariants, began: float) -> Iterable[BuildResult]:
        waiting = {
            name: derivation
            for name, derivation in offer.variants.items()
            if self.flake.options.rebuild
            or not is_current_copy(self._space(name), derivation.output, self._target(name))
        }
        looked = time.monotonic() - began
        for name in offer.variants:
            if name not in waiting:
                yield replace(self._placed(name, "up-to-date"), seconds=looked)
        if waiting:
            yield from self._realise(waiting)

    def _realise(self, waiting: Mapping[str, Derivation]) -> Iterable[BuildResult]:
        flake, services = self.flake, self.services
        run = NixBuildCommand(flake.nix, flake.options, waiting, services.runner, services.ui)
        result = run.perform(self.project.root)
        for name, derivation in waiting.items():
            error = result.failed.get(name)
            if error is None:
                if name not in result.seconds and not flake.options.rebuild:
                    services.ui.say(f"{name}: it was in the store already, or in a binary cache")
                yield replace(self._copied(name, derivation), seconds=result.seconds.get(name, 0.0))
            else:
                services.ui.error(error)
                yield BuildResult(name, "failed", error.message, error=error)

    def _copied(self, name: str, derivation: Derivation) -> BuildResult:
        from kbuild.checks.probe_cache import record_built

        target, state = self._target(name), self.flake.nix.sandbox.state
        # With `--rebuild`, a variant is built although its copy is current.
        if is_current_copy(self._space(name), derivation.output, target):
            return self._placed(name, "up-to-date")
        copy_variant(self._space(name), derivation.output, target, "" if state == "on" else state)
        record_built(self.services.cache, target)
        removed = discard_outdated_attestation(target)
        if removed:
            names = ", ".join(path.name for path in removed)
            self.services.ui.say(f"{name}: removed {names} of an older build")
        return self._placed(name, "built")

    def _placed(self, name: str, status: BuildStatus) -> BuildResult:
        """The outcome for a variant that is in its place."""
        target = self._target(name)
        built = metadata_in(target)
        overruled = built.overruled if built else {}
        return BuildResult(name, status, path=target, overruled=overruled)

    @property
    def _folder(self) -> Path:
        return self.output or self.project.root / "build"

    def _target(self, name: str) -> Path:
        return self._folder / name

    def _space(self, name: str) -> Workspace:
        return Workspace(self.project.root, name)
