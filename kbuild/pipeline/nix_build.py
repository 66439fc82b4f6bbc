"""Builds all selected variants with Nix, each as a derivation of the project's flake."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kbuild import manual_page
from kbuild.pipeline.nix.build import NixBuildCommand
from kbuild.pipeline.nix.flake import (
    FLAKE_FILE,
    Derivation,
    Flake,
    FlakeVariants,
    uses_kbuild,
)
from kbuild.pipeline.nix.program import find_nix, settings_in
from kbuild.pipeline.package import (
    install_variant,
    normalize_modes,
    remove_leftovers,
    restore_old_variant,
)
from kbuild.pipeline.result import BuildResult, BuildStatus
from kbuild.plan.metadata import METADATA_FILE, metadata_in
from kbuild.plan.project import Project
from kbuild.plan.selection import Selection, VariantChoice, select_variants
from kbuild.project.variant import System, host_system
from kbuild.system.cache import NIX_COPY, Cache
from kbuild.system.code_digest import package_digest
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.file_state import identify
from kbuild.system.record import Record, read_record, texts
from kbuild.system.services import Services
from kbuild.system.untrusted import read_json
from kbuild.system.workspace import Workspace


def record_copy(space: Workspace, output: str, target: Path, sandbox: str) -> None:
    """Note that `target` was just made a copy of the store path `output`."""
    files = {path: identify(target / path) for path in _files(target)}
    answer = {"output": output, "target": str(target), "sandbox": sandbox}
    Record(answer, files, package_digest()).write(Cache(space.root, NIX_COPY))


def _read(space: Workspace) -> Record | None:
    return read_record(Cache(space.root, NIX_COPY), parse=texts("output", "target", "sandbox"))


def _files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


_SANDBOX_STATES = ("", "unsure", "relaxed", "off")
"""States of the sandbox in metadata, from the best to the worst."""


def is_current_copy(space: Workspace, output: str, target: Path) -> bool:
    """True when `target` is the copy of the store path `output`, untouched since."""
    record = _read(space)
    return (
        record is not None
        and (record.answer["output"], record.answer["target"]) == (output, str(target))
        and record.holds(target, None)
        # `holds` looks at recorded files alone; this finds files that were added.
        and set(_files(target)) == set(record.observed)
    )


def copy_variant(space: Workspace, output: str, target: Path, sandbox: str) -> None:
    """Make `target` a copy of the store path `output`.

    Args:
        space: the variant's workspace.
        output: the path in the store.
        target: the variant directory.
        sandbox: what is wrong with the sandbox, for `metadata.json`; empty when nothing is.

    Raises:
        FileConflictError: `target` exists and is not a variant directory.
    """
    with space.locked():
        record = _read(space)
        if record is not None and record.answer["output"] == output:  # it was made then
            sandbox = max(sandbox, record.answer["sandbox"], key=_SANDBOX_STATES.index)
        restore_old_variant(target)
        install_variant(Path(output), target, partial(_make_writable, sandbox=sandbox))
        record_copy(space, output, target, sandbox)


def _make_writable(folder: Path, sandbox: str) -> None:
    """Make the copied files writable and new: the store's are read-only and from 1970."""
    normalize_modes(folder)
    for path in folder.rglob("*"):
        os.utime(path)
    if sandbox:
        metadata = folder / METADATA_FILE
        document = read_json(metadata, "metadata of a variant")
        provenance = document.get("provenance")
        builder = provenance.get("kernel-builder") if isinstance(provenance, dict) else None
        if isinstance(builder, dict):
            builder["sandbox"] = sandbox
            metadata.write_text(
                json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )


class NoDerivationError(ToolchainError):
    """The flake offers none of the selected variants."""

    def __init__(self, project: Project, skipped: Sequence[BuildResult]) -> None:
        reasons = "".join(f"\n    {result.variant}: {result.reason}" for result in skipped)
        super().__init__(
            f"the flake of {project.name} offers none of these variants:{reasons}",
            hint="`kbuild build` without `--driver nix` builds on this machine",
        )


def open_flake(root: Path, arguments: tuple[str, ...], services: Services) -> Flake:
    """The flake of the project in `root`, and the Nix that reads it; `arguments` are for Nix.

    Raises:
        UsageError: the project has no flake that uses kbuild.
        ToolchainError: Nix is not there, or cannot be used.
    """
    if not uses_kbuild(root):
        raise UsageError(
            f"`{root}` has no {FLAKE_FILE} that uses kbuild, so Nix has nothing to build",
            hint=f"`kbuild init` writes one; see {manual_page('how-to/build-with-nix.md')}",
        )
    nix = find_nix(services.cache, services.runner, settings_in(arguments))
    services.ui.say(f"driver: nix {nix.version}, sandbox {nix.sandbox.state}")
    return Flake(root, nix, services.runner, arguments)


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
            if not is_current_copy(self._space(name), derivation.output, self._target(name))
        }
        looked = time.monotonic() - began
        for name in offer.variants:
            if name not in waiting:
                yield replace(self._placed(name, "up-to-date"), seconds=looked)
        if waiting:
            yield from self._realise(waiting)

    def _realise(self, waiting: Mapping[str, Derivation]) -> Iterable[BuildResult]:
        flake, services = self.flake, self.services
        run = NixBuildCommand(flake.nix, flake.arguments, waiting, services.runner, services.ui)
        result = run.perform(self.project.root)
        for name, derivation in waiting.items():
            error = result.failed.get(name)
            if error is None:
                if name not in result.seconds:
                    services.ui.say(f"{name}: it was in the store already, or in a binary cache")
                yield replace(self._copied(name, derivation), seconds=result.seconds.get(name, 0.0))
            else:
                services.ui.error(error)
                yield BuildResult(name, "failed", error.message, error=error)

    def _copied(self, name: str, derivation: Derivation) -> BuildResult:
        from kbuild.checks.probe_cache import record_built

        target, state = self._target(name), self.flake.nix.sandbox.state
        copy_variant(self._space(name), derivation.output, target, "" if state == "on" else state)
        record_built(self.services.cache, target)
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
