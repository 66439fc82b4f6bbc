"""From a plan to a staged variant directory: generate, configure once, ninja, install."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.build import ninja
from kbuild.build.budget import Run, launcher_entries
from kbuild.build.detection import Detection
from kbuild.build.workspace import Workspace
from kbuild.errors import BuildError
from kbuild.fileset import replace_atomically
from kbuild.generate import generate
from kbuild.plan import VariantPlan
from kbuild.run import Done, Runner
from kbuild.toolchains import Toolchain
from kbuild.toolchains.facts import FactCache

if TYPE_CHECKING:  # what only projects with kernels in DSLs need
    from kbuild.languages.produce import Images, Produced
    from kbuild.languages.workshop import Workshop

_KEY = "kbuild-configured"


@dataclass(frozen=True)
class Staged:
    """A variant directory that waits for its checks."""

    folder: Path
    units: int
    """Build steps that ran."""
    inputs: tuple[str, ...]
    """Project files that the result depends on, relative to the project."""
    compiled: Images = ()
    """The images of each kernel in a DSL."""


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

    def perform(self) -> Staged:
        """Make the staged directory.

        Raises:
            BuildError: a process failed.
            IncompleteError: the run's time was over before everything was compiled.
        """
        produced = self._produce()
        files = generate(self.plan)
        if produced is not None:
            files = files.merge(produced.files)
        files.write(self.space.source, force=True)
        shutil.rmtree(self.space.stage.parent, ignore_errors=True)
        self.space.stage.mkdir(parents=True)
        if not self.plan.is_compiled:
            self._copy_python()
            return Staged(self.space.stage, 0, self.plan.inputs)
        self._configure()
        units = self._compile()
        self._install()
        self._copy_generated(produced)
        headers = ninja.dependencies(
            self.runner, self.toolchain.ninja, self.space.tree, self.space.project
        )
        return Staged(
            self.space.stage,
            units,
            tuple(sorted({*self.plan.inputs, *headers})),
            produced.compiled if produced else (),
        )

    def _produce(self) -> Produced | None:
        """Have the kernels in DSLs compiled, by the variant's own token and those that are free."""
        if not self.plan.aot or self.workshop is None:
            return None
        from kbuild.languages.produce import produce

        return produce(self.plan, self.space.project, self.workshop, self.tell)

    def _copy_generated(self, produced: Produced | None) -> None:
        """What Python has to know of generated ops lies in the package, beside `_ops.py`."""
        for path, data in produced.python() if produced else ():
            target = self.space.stage / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    def _copy_python(self) -> None:
        for file in self.plan.files:
            target = self.space.stage / file.target
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.space.project / file.source, target)
        shutil.copyfile(self.space.source / "_ops.py", self.space.stage / "_ops.py")

    def _configure(self) -> None:
        """Run cmake, unless this tree was configured with the same facts before."""
        key = self._configure_key()
        mark = self.space.tree / _KEY
        if mark.is_file() and mark.read_text() == key:
            return
        mark.unlink(missing_ok=True)
        detection = Detection(self.toolchain, self._languages, FactCache(self.run.cache))
        if not (detection.seed(self.space.tree) and self._cmake(self._cmake_command()).ok):
            self._cmake_from_nothing()
            detection.keep(self.space.tree)
        replace_atomically(mark, key.encode())

    def _cmake_from_nothing(self) -> None:
        done = self._cmake((*self._cmake_command(), "--fresh"))
        if not done.ok:
            excerpt = ninja.first_errors(done.output.splitlines())
            log = self._configure_log
            raise BuildError("cmake failed", excerpt=excerpt, command=done.command, log=log)

    def _cmake(self, command: tuple[str, ...]) -> Done:
        env, log = self.toolchain.env, self._configure_log
        return self.runner.run(command, env=env, log=log, inherit=self.lock)

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
    def _languages(self) -> set[str]:
        sources = (source for part in self.plan.components for source in part.compiled)
        return {"CXX", *(source.language for source in sources if source.language)}

    def _compile(self) -> int:
        return ninja.build(
            self.runner,
            self.toolchain.ninja,
            self.space.tree,
            root=self.space.project,
            jobs=None if self.run.server else self.run.budget.jobs,
            env={**self.toolchain.env, **self._environment},
            log=self.space.logs / "build.log",
            tell=self.tell,
            lock=self.lock,
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
        done = self.runner.run(command, env=self.toolchain.env, log=log)
        if not done.ok:
            excerpt = ninja.first_errors(done.output.splitlines())
            raise BuildError("install failed", excerpt=excerpt, command=done.command, log=log)
