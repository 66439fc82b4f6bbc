"""Compiles a plan into a staged variant directory: generate, configure once, ninja, install."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kbuild.build import ninja
from kbuild.build.compiler_detection import CompilerDetectionCache
from kbuild.plan.generate.project import generate
from kbuild.plan.plan import VariantPlan
from kbuild.system.budget import Run
from kbuild.system.errors import BuildError
from kbuild.system.file_state import (
    FileState,
    copy_and_identify,
    file_clock,
    has_changed_since,
    identify,
    storable_state,
)
from kbuild.system.files import FileSet, replace_atomically
from kbuild.system.processes import ProcessResult, Runner, canonical_interpreter
from kbuild.system.sourcetree import SourceTree
from kbuild.system.workspace import WORKSPACE_FOLDER, Workspace
from kbuild.toolchains.base import Toolchain
from kbuild.toolchains.facts import FactCache

if TYPE_CHECKING:  # what only projects with kernels in DSLs need
    from kbuild.dsl.aot_build import AotOutput
    from kbuild.dsl.aot_compiler import AotCompiler
    from kbuild.dsl.image_rows import Images


_CONFIGURED_FILE = "kbuild-configured"
_ATTEMPTS = 2
"""Attempts at something whose inputs change meanwhile."""


@dataclass(frozen=True)
class StagedVariant:
    """A variant directory that waits for its checks."""

    folder: Path
    steps: int
    """Build steps that ran."""
    inputs: Mapping[str, FileState]
    """Project files that the result depends on, as they were read, by path relative to the project;
    None for one that was looked for and not there."""
    compiled: Images = ()
    changed: str = ""
    """An input that was read in two states; empty if there is none."""


@dataclass(frozen=True)
class CompileTree:
    """A configured tree, and its compile commands."""

    plan: VariantPlan
    project: Path
    tree: Path
    commands: list[list[str]]
    """Commands of the launcher, one for each object."""
    environ: Mapping[str, str]
    """The whole environment of the compilers."""
    generated: FileSet = field(default_factory=FileSet)
    """Files generated from images, besides what follows from the plan."""


class ObjectFiller(Protocol):
    """Fills the cache with objects from elsewhere."""

    def fill_objects(self, tree: CompileTree, tell: ninja.ProgressCallback) -> None:
        """Put those objects of a tree into the cache that others can make; the rest is left.

        Raises nothing that would end a build on this machine.
        """


@dataclass(frozen=True)
class Compilation:
    """The compilation of one plan with one toolchain in one workspace, as a part of one run."""

    plan: VariantPlan
    toolchain: Toolchain
    space: Workspace
    runner: Runner
    run: Run
    tell: ninja.ProgressCallback
    lock: tuple[int, ...] = ()
    """Descriptors that hold the workspace: whoever writes to the tree inherits them."""
    aot_compiler: AotCompiler | None = None
    """Compiles kernels in DSLs; None when the plan has none."""
    note: Callable[[str], None] = lambda _: None
    """Called with what kernels in DSLs leave out, as text for the user."""
    filler: ObjectFiller | None = None
    """Puts objects into the cache before this machine compiles what is missing there."""

    def perform(self) -> StagedVariant:
        """Make the staged directory.

        Raises:
            BuildError: a process failed, or a file was edited again and again.
            IncompleteError: the run's time was over before everything was compiled.
        """
        staged = self._stage()
        # Parts of a build read files one after the other: an edit in between gives a mixed variant.
        if staged.changed:
            staged = self._stage()
        if staged.changed:
            raise _inputs_keep_changing(staged.changed)
        return staged

    def _stage(self) -> StagedVariant:
        paths = self.plan.inputs
        since = file_clock()
        # `since` comes first: a file that is edited while it is read is not trusted by its times.
        named = {path: storable_state(identify(self.space.project / path), since) for path in paths}
        produced, described = self._produce()
        files = generate(self.plan)
        if produced is not None:
            files = files.merge(produced.files)
        files.write(self.space.source, force=True)
        # A file that an earlier plan installed must not be shipped.
        shutil.rmtree(self.space.stage.parent, ignore_errors=True)
        self.space.stage.mkdir(parents=True)
        if not self.plan.is_compiled:
            shipped = self._ship()
            shutil.copyfile(self.space.source / "_ops.py", self.space.stage / "_ops.py")
            return StagedVariant(self.space.stage, 0, {**named, **shipped})
        self._configure()
        units, compiled = self._compile(files, produced.files if produced else FileSet())
        self._install()
        # What Python has to know of generated ops lies in the package, beside `_ops.py`.
        for path, data in produced.python() if produced else ():
            target = self.space.stage / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        parts = (described, compiled, self._ship())
        return StagedVariant(
            self.space.stage,
            units,
            {path: then for part in (named, *parts) for path, then in part.items()},
            produced.compiled if produced else (),
            _file_with_two_states(parts),
        )

    def _produce(self) -> tuple[AotOutput | None, dict[str, FileState]]:
        """Compile the kernels in DSLs, with the variant's own token and free ones.

        Their sources and tables are read in many places: all of it is done again when one changes.
        """
        if not self.plan.aot or self.aot_compiler is None:
            return None, {}
        from kbuild.dsl.aot_build import build_aot_kernels

        paths = sorted(
            {path for kernel in self.plan.aot for path in (*kernel.sources, *kernel.tables)}
        )
        changed: list[str] = []
        for _ in range(_ATTEMPTS):
            since = file_clock()
            read = {path: identify(self.space.project / path) for path in paths}
            produced = build_aot_kernels(
                self.plan, self.space.project, self.aot_compiler, self.tell, self.note
            )
            until = file_clock()
            project = self.space.project
            changed = [
                path for path in paths if has_changed_since(project / path, read[path], since)
            ]
            if not changed:
                return produced, {path: storable_state(then, until) for path, then in read.items()}
        raise _inputs_keep_changing(changed[0])

    def _ship(self) -> dict[str, FileState]:
        """Copy the package's files, over those that CMake installed; return their states."""
        shipped, tree = {}, SourceTree(self.space.project)
        for file in self.plan.files:
            tree.refuse(file.source)
            target = self.space.stage / file.target
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # it may be a link
            try:
                shipped[file.source] = copy_and_identify(self.space.project / file.source, target)
            except OSError as error:
                message = f"`{file.source}` cannot be copied: {error.strerror}"
                raise BuildError(
                    message, hint="was it moved while kbuild ran? Build again"
                ) from None
        return shipped

    def configured_tree(self, generated: FileSet) -> CompileTree:
        """The tree that compiles the plan; nothing is compiled.

        Args:
            generated: what was generated from the images of kernels in DSLs.

        Raises:
            BuildError: cmake failed.
        """
        generate(self.plan).merge(generated).write(self.space.source, force=True)
        self._configure()
        return self._compile_tree(generated)

    def _compile_tree(self, generated: FileSet) -> CompileTree:
        program, tree = self.toolchain.ninja, self.space.tree
        commands = ninja.launcher_commands(self.runner, program, tree, LAUNCHER, self._held)
        environ = {**self.toolchain.env, **self._environment}
        return CompileTree(self.plan, self.space.project, tree, commands, environ, generated)

    def _configure(self) -> None:
        """Run cmake, unless this tree was configured with the same facts before."""
        facts = [self._cmake_command(), self.toolchain.fingerprint]
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        mark = self.space.tree / _CONFIGURED_FILE
        if mark.is_file() and mark.read_text() == key:
            return
        # Removed first: a configuration that is interrupted must not count as done.
        mark.unlink(missing_ok=True)
        detection = CompilerDetectionCache(
            self.toolchain, self._languages, FactCache(self.run.cache)
        )
        # Kept answers may not hold any more: where CMake fails with them, it detects all anew.
        if not (detection.seed(self.space.tree) and self._cmake(self._cmake_command()).ok):
            since = time.time_ns()
            # `--fresh` also drops what an attempt with kept answers has left in the tree.
            done = self._cmake((*self._cmake_command(), "--fresh"))
            if not done.ok:
                log = self._configure_log
                raise ninja.process_failure("cmake failed", done, self.space.tree, log)
            detection.keep(self.space.tree, since)
        replace_atomically(mark, key.encode())

    def _cmake(self, command: tuple[str, ...]) -> ProcessResult:
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
            ("KBUILD_WRITES_METADATA", "ON"),
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

    @property
    def _held(self) -> tuple[int, ...]:
        """Locks that child processes inherit: they may still write after kbuild was killed."""
        return (*self.lock, *self.run.lock)

    @property
    def _languages(self) -> set[str]:
        sources = (source for part in self.plan.components for source in part.compiled)
        return {"CXX", *(source.language for source in sources if source.language)}

    def _compile(self, files: FileSet, generated: FileSet) -> tuple[int, dict[str, FileState]]:
        """Compile and link; the number of units that ran, and the states of the project's files.

        All objects have read the same state of each file, or are compiled again. `generated` is the
        part of the files that does not follow from the plan.
        """
        if sys.platform != "win32":  # there is no launcher that records anything
            # ninja compares times only; these objects were made from other content.
            ninja.delete_stale_objects(self.space.tree)
        units, changed = 0, ""
        environ = {**self.toolchain.env, **self._environment}
        for attempt in range(_ATTEMPTS):
            # Later attempts compile only the few objects whose inputs changed.
            if attempt == 0 and self.filler is not None and self.run.keeps:
                self.filler.fill_objects(self._compile_tree(generated), self.tell)
            units += ninja.run_ninja(
                self.runner,
                self.toolchain.ninja,
                self.space.tree,
                root=self.space.project,
                # A ninja that is given `-j` takes no tokens from the jobserver.
                jobs=None if self.run.server else self.run.budget.jobs,
                env=environ,
                log=self.space.logs / "build.log",
                tell=self.tell,
                lock=self._held,
            )
            # A generated file that had to be written again was edited during the build.
            rewritten = files.write(self.space.source, force=True).written
            program, tree = self.toolchain.ninja, self.space.tree
            known = ninja.read_object_inputs(
                tree, ninja.library_objects(self.runner, program, tree, self._held)
            )
            disagreeing = known.disagreeing(self.space.source)
            if not disagreeing and not rewritten:
                project = self.space.project
                return units, dict(known.below(project, project / WORKSPACE_FOLDER))
            for path in disagreeing:
                ninja.delete_object(path)
            changed = next(iter((*disagreeing.values(), *rewritten)))
        raise _inputs_keep_changing(changed.removeprefix(f"{self.space.project}/"))

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
            raise ninja.process_failure("install failed", done, self.space.stage, log)


def _file_with_two_states(parts: Iterable[Mapping[str, FileState]]) -> str:
    """A file that two parts of the build read in two states; empty if there is none."""
    files: dict[str, FileState] = {}
    for part in parts:
        for path, then in part.items():
            known = files.setdefault(path, then)
            # Only the hashes count: a file may have been written again with the same content.
            if known is not None and then is not None and known[4] != then[4]:
                return path
    return ""


def _inputs_keep_changing(path: str) -> BuildError:
    message = f"`{path}` changed each time that it was built"
    return BuildError(message, hint="stop editing the file, then build again")


LAUNCHER = Path(__file__).with_name("launcher.py")
LAUNCHER_LANGUAGES = ("CXX", "C", "ASM", "CUDA", "HIP", "OBJCXX")
"""CMake languages whose compilers get the launcher."""


def launcher_entries(languages: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """CMake cache entries that put the launcher before the compilers of these languages.

    The launcher needs `wait4` and `flock`: on Windows there are none, and no entries.
    """
    if sys.platform == "win32":
        return ()
    # ninja compiles again whatever has another command, so the interpreter's name must not vary.
    # `-S` saves the import of `site`: the launcher runs once for each unit.
    command = f"{canonical_interpreter(Path(sys.executable))};-I;-S;{LAUNCHER}"
    wanted = [language for language in LAUNCHER_LANGUAGES if language in set(languages)]
    return tuple((f"CMAKE_{name}_COMPILER_LAUNCHER", f"{command};{name}") for name in wanted)
