"""From a plan to a staged variant directory: generate, configure once, ninja, install."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.build import inputs, ninja
from kbuild.build.budget import Run, launcher_entries
from kbuild.build.detection import Detection
from kbuild.build.workspace import FOLDER, Workspace
from kbuild.errors import BuildError
from kbuild.fileset import FileSet, replace_atomically
from kbuild.filestate import Look, clock, copied, has_moved, identify, lasting
from kbuild.generate import generate
from kbuild.plan import VariantPlan
from kbuild.run import Done, Runner
from kbuild.sourcetree import SourceTree
from kbuild.toolchains import Toolchain
from kbuild.toolchains.facts import FactCache

if TYPE_CHECKING:  # what only projects with kernels in DSLs need
    from kbuild.languages.produce import Images, Produced
    from kbuild.languages.workshop import Workshop

_KEY = "kbuild-configured"
_ATTEMPTS = 2
"""How often something is made whose inputs change meanwhile."""


@dataclass(frozen=True)
class Staged:
    """A variant directory that waits for its checks."""

    folder: Path
    units: int
    """Build steps that ran."""
    inputs: Mapping[str, Look]
    """Project files that the result depends on, as they were read, by path relative to the project;
    None for one that was looked for and not there."""
    compiled: Images = ()
    """The images of each kernel in a DSL."""
    changed: str = ""
    """An input of which it holds two states, when there is one."""


@dataclass(frozen=True)
class Compilation:
    """One plan, one toolchain, one workspace, as a part of one run."""

    plan: VariantPlan
    toolchain: Toolchain
    space: Workspace
    runner: Runner
    run: Run
    tell: ninja.Tell
    lock: tuple[int, ...] = ()
    """Descriptors that hold the workspace: whoever writes to the tree inherits them."""
    workshop: Workshop | None = None
    """Compiles kernels in DSLs; None when the plan has none."""
    note: Callable[[str], None] = lambda _: None
    """Told what kernels in DSLs leave out, in words for the user."""

    def perform(self) -> Staged:
        """Make the staged directory.

        Raises:
            BuildError: a process failed, or a file was edited again and again.
            IncompleteError: the run's time was over before everything was compiled.
        """
        staged = self._stage()
        if staged.changed:
            staged = self._stage()
        if staged.changed:
            raise _unrest(staged.changed)
        return staged

    def _stage(self) -> Staged:
        named = self._identified(self.plan.inputs)
        produced, described = self._produce()
        files = generate(self.plan)
        if produced is not None:
            files = files.merge(produced.files)
        files.write(self.space.source, force=True)
        shutil.rmtree(self.space.stage.parent, ignore_errors=True)
        self.space.stage.mkdir(parents=True)
        if not self.plan.is_compiled:
            shipped = self._ship()
            shutil.copyfile(self.space.source / "_ops.py", self.space.stage / "_ops.py")
            return Staged(self.space.stage, 0, {**named, **shipped})
        self._configure()
        units, compiled = self._compile(files)
        self._install()
        self._copy_generated(produced)
        parts = (described, compiled, self._ship())
        return Staged(
            self.space.stage,
            units,
            {path: then for part in (named, *parts) for path, then in part.items()},
            produced.compiled if produced else (),
            _changed(parts),
        )

    def _identified(self, paths: Iterable[str]) -> dict[str, Look]:
        since = clock()
        return {path: lasting(identify(self.space.project / path), since) for path in paths}

    def _produce(self) -> tuple[Produced | None, dict[str, Look]]:
        """Have the kernels in DSLs compiled, by the variant's own token and those that are free.

        Their sources and tables are read in many places: all of it is done again when one changes.
        """
        if not self.plan.aot or self.workshop is None:
            return None, {}
        from kbuild.languages.produce import produce

        paths = sorted({path for one in self.plan.aot for path in (*one.sources, *one.tables)})
        changed: list[str] = []
        for _ in range(_ATTEMPTS):
            since = clock()
            read = {path: identify(self.space.project / path) for path in paths}
            produced = produce(self.plan, self.space.project, self.workshop, self.tell, self.note)
            until = clock()
            project = self.space.project
            changed = [path for path in paths if has_moved(project / path, read[path], since)]
            if not changed:
                return produced, {path: lasting(then, until) for path, then in read.items()}
        raise _unrest(changed[0])

    def _copy_generated(self, produced: Produced | None) -> None:
        """What Python has to know of generated ops lies in the package, beside `_ops.py`."""
        for path, data in produced.python() if produced else ():
            target = self.space.stage / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    def _ship(self) -> dict[str, Look]:
        """Copy the package's files, also over those that CMake has installed: as they are read."""
        shipped, tree = {}, SourceTree(self.space.project)
        for file in self.plan.files:
            tree.refuse(file.source)
            target = self.space.stage / file.target
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # it may be a link
            try:
                shipped[file.source] = copied(self.space.project / file.source, target)
            except OSError as error:
                words = f"`{file.source}` cannot be copied: {error.strerror}"
                raise BuildError(words, hint="was it moved while kbuild ran? Build again") from None
        return shipped

    def _configure(self) -> None:
        """Run cmake, unless this tree was configured with the same facts before."""
        key = self._configure_key()
        mark = self.space.tree / _KEY
        if mark.is_file() and mark.read_text() == key:
            return
        mark.unlink(missing_ok=True)
        detection = Detection(self.toolchain, self._languages, FactCache(self.run.cache))
        if not (detection.seed(self.space.tree) and self._cmake(self._cmake_command()).ok):
            since = time.time_ns()
            self._cmake_from_nothing()
            detection.keep(self.space.tree, since)
        replace_atomically(mark, key.encode())

    def _cmake_from_nothing(self) -> None:
        done = self._cmake((*self._cmake_command(), "--fresh"))
        if not done.ok:
            raise ninja.failed("cmake failed", done, self.space.tree, self._configure_log)

    def _cmake(self, command: tuple[str, ...]) -> Done:
        env, log = {**self.toolchain.env, **self.run.temporary}, self._configure_log
        return self.runner.run(command, env=env, log=log, inherit=self._held)

    @property
    def _configure_log(self) -> Path:
        return self.space.logs / "configure.log"

    def _cmake_command(self) -> tuple[str, ...]:
        entries = (
            ("CMAKE_MAKE_PROGRAM", str(self.toolchain.ninja)),
            ("KBUILD_SOURCE_DIR", str(self.space.project)),
            ("KBUILD_VARIANT", self.plan.variant),
            *launcher_entries(self._languages),
            *self.toolchain.cache,
        )
        return (
            str(self.toolchain.cmake),
            *("-G", "Ninja"),
            *("-S", str(self.space.source)),
            *("-B", str(self.space.tree)),
            *(f"-D{name}={value}" for name, value in entries),
        )

    def _configure_key(self) -> str:
        facts = [self._cmake_command(), self.toolchain.fingerprint]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def _held(self) -> tuple[int, ...]:
        """What every process has to inherit that may write after a kill of kbuild alone."""
        return (*self.lock, *self.run.lock)

    @property
    def _languages(self) -> set[str]:
        sources = (source for part in self.plan.components for source in part.compiled)
        return {"CXX", *(source.language for source in sources if source.language)}

    def _compile(self, files: FileSet) -> tuple[int, dict[str, Look]]:
        """Compile and link; the units that ran, and the project's files as they were compiled.

        All objects have read the same state of each file, or are compiled again.
        """
        if sys.platform != "win32":  # there is no launcher that records anything
            inputs.drop_stale(self.space.tree)
        units, changed = 0, ""
        for _ in range(_ATTEMPTS):
            units += self._ninja()
            rewritten = files.write(self.space.source, force=True).written
            program, tree = self.toolchain.ninja, self.space.tree
            known = inputs.inputs_of(tree, ninja.objects(self.runner, program, tree, self._held))
            disagreeing = known.disagreeing(self.space.source)
            if not disagreeing and not rewritten:
                project = self.space.project
                return units, dict(known.below(project, project / FOLDER))
            for path in disagreeing:
                inputs.drop(path)
            changed = next(iter((*disagreeing.values(), *rewritten)))
        raise _unrest(changed.removeprefix(f"{self.space.project}/"))

    def _ninja(self) -> int:
        return ninja.build(
            self.runner,
            self.toolchain.ninja,
            self.space.tree,
            root=self.space.project,
            jobs=None if self.run.server else self.run.budget.jobs,
            env={**self.toolchain.env, **self._environment},
            log=self.space.logs / "build.log",
            tell=self.tell,
            lock=self._held,
        )

    @property
    def _environment(self) -> dict[str, str]:
        return self.run.environment(self.plan.variant, self.space.project, self.toolchain.compilers)

    def _install(self) -> None:
        log = self.space.logs / "install.log"
        command = (
            str(self.toolchain.cmake),
            *("--install", str(self.space.tree)),
            *("--prefix", str(self.space.stage)),
            *("--component", self.plan.ops_name),
        )
        done = self.runner.run(command, env=self.toolchain.env, log=log, inherit=self._held)
        if not done.ok:
            raise ninja.failed("install failed", done, self.space.stage, log)


def _changed(parts: Iterable[Mapping[str, Look]]) -> str:
    """A file of which two parts of the build have read two states; empty when there is none."""
    files: dict[str, Look] = {}
    for part in parts:
        for path, then in part.items():
            known = files.setdefault(path, then)
            if known is not None and then is not None and known[4] != then[4]:
                return path
    return ""


def _unrest(path: str) -> BuildError:
    message = f"`{path}` changed each time that it was built"
    return BuildError(message, hint="let the file rest, then build again")
