"""One `nix build` for everything that is wanted."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.build.workspace import Workspace
from kbuild.errors import BuildError, CheckError, KbuildError
from kbuild.nix.events import name_of
from kbuild.nix.fetching import Lent, lent_settings
from kbuild.nix.flake import Derivation
from kbuild.nix.options import NixOptions
from kbuild.nix.program import Nix
from kbuild.nix.watch import Watch
from kbuild.run import Done, Runner
from kbuild.ui import Ui

NAME = "nix"
"""The workspace of a run of Nix."""
_DIFFERS = "may not be deterministic"


@dataclass(frozen=True)
class Realised:
    """What came of the derivations that were wanted."""

    failed: Mapping[str, KbuildError] = field(default_factory=dict)
    """Name -> error of those that are not there."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Name -> how long its own builder ran, of those that were built rather than fetched."""


@dataclass(frozen=True)
class Realisation:
    """Derivations by name, and how they are to be made."""

    nix: Nix
    options: NixOptions
    wanted: Mapping[str, Derivation]
    runner: Runner
    ui: Ui

    def perform(self, project: Path) -> Realised:
        """Make them; as many as can be made, when some fail.

        Args:
            project: gets the logs, below `.kbuild/nix`.

        Raises:
            CheckError: a second build gave something else (`--rebuild`).
            BuildError: Nix failed for a reason that is no derivation's.
        """
        space = Workspace(project, NAME)
        with space.locked() as lock, lent_settings(self.nix, self.runner) as lent:
            shutil.rmtree(space.logs, ignore_errors=True)
            for place in lent.unreadable:
                self.ui.warn(
                    f"pip is told to look at {place}, which Nix's builders cannot: "
                    f"they are the users of `{self.nix.sandbox.group}` (chmod -R o+rX {place})"
                )
            made = self._run(space, lock, lent)
            if self.options.rebuild and not made.failed:
                self._run(space, lock, lent, "--rebuild")
        return made

    def _run(self, space: Workspace, lock: Sequence[int], lent: Lent, *mode: str) -> Realised:
        title = next(iter(self.wanted)) if len(self.wanted) == 1 else f"{len(self.wanted)} variants"
        with self.ui.progress(title, 0) as progress:
            watch = Watch(self._label, space.logs, self.ui, progress, self.options.print_logs)
            log = space.logs / ("rebuild.json" if mode else "build.json")
            try:
                done = self.runner.run(
                    self._command(lent, *mode),
                    cwd=space.project,
                    env=lent.environment,
                    log=log,
                    listen=watch.listen,
                    inherit=lock,
                )
            finally:
                watch.close()
        if mode and not done.ok:
            raise _different(watch, log)
        return self._judged(done, watch, log)

    def _command(self, lent: Lent, *mode: str) -> tuple[str, ...]:
        made = self.wanted.values()
        files = (
            [one.compiled for one in made if one.compiled] if mode else [one.file for one in made]
        )
        installables = [self.nix.outputs_of(file) for file in files]
        how = ("--no-link", "--keep-going", "--log-format", "internal-json", *mode)
        options = (*self.options.realisation, *lent.options)
        return self.nix.command("build", *how, *options, *installables)

    def _label(self, derivation: str) -> str:
        """The variant that a derivation is for: its own, or one that its name tells."""
        name = name_of(derivation)
        for own, made in self.wanted.items():
            if derivation in {made.file, made.compiled} or own in name:
                return own
        return name

    def _judged(self, done: Done, watch: Watch, log: Path) -> Realised:
        missing = [name for name, made in self.wanted.items() if not Path(made.output).exists()]
        if not done.ok and not watch.reasons:
            raise _nix_failed(watch.errors, done, log)
        errors = dict(watch.failures())
        failed = {name: self._why(name, errors, log) for name in missing}
        return Realised(failed, self._seconds(watch))

    def _why(self, name: str, errors: Mapping[str, BuildError], log: Path) -> BuildError:
        """A variant's own failure, else that of one of those that it may need."""
        others = [error for file, error in errors.items() if self._label(file) not in self.wanted]
        for file, error in errors.items():
            if self._label(file) == name:
                return error
        for error in others:
            words = f"{name}: {error.message}"
            return BuildError(words, excerpt=error.excerpt, log=error.log, hint=error.hint)
        return BuildError(
            f"{name}: Nix made it, but not as `{self.wanted[name].output}`",
            log=log,
            hint="kbuild copies from this machine's own store",
        )

    def _seconds(self, watch: Watch) -> dict[str, float]:
        taken: dict[str, float] = {}
        for build in watch.builds.values():
            name = self._label(build.derivation)
            if name in self.wanted and build.ended is not None:
                taken[name] = taken.get(name, 0.0) + build.ended - build.began
        return taken


def _nix_failed(errors: Sequence[str], done: Done, log: Path) -> BuildError:
    first, *more = (errors[-1] if errors else "it does not say why").splitlines()
    command = done.command if not errors else ""
    return BuildError(f"nix build failed: {first}", excerpt=more, command=command, log=log)


def _different(watch: Watch, log: Path) -> KbuildError:
    """A second build that failed, or gave other bytes."""
    words = [text for text in watch.errors if _DIFFERS in text]
    if not words:
        return next((error for _, error in watch.failures()), None) or BuildError(
            f"the second build failed: {next(iter(watch.errors), 'Nix does not say why')}", log=log
        )
    names = sorted({watch.labels(file) for file in watch.reasons} or {"a derivation"})
    message = f"built a second time, {', '.join(names)} came out different"
    return CheckError(message, [], hint=f"{words[0]}; `kbuild reproduce` shows where")
