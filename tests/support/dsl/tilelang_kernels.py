"""Kernels in TileLang."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kbuild.dsl.launcher.resolved_kernel import ResolvedLaunch, ResolvedOp
from kbuild.dsl.resolve import with_autotune_key
from kbuild.ops.binding import bind
from kbuild.ops.candidates import with_candidates
from kbuild.ops.image import UnitImage
from kbuild.ops.language import LANGUAGES, KernelFunction
from kbuild.ops.model import OpSpec
from kbuild.ops.unit import ImageTarget
from kbuild.project.config.issue import IssueCollector
from tests.support.dsl.compiled import DslKernel, DslProject, dsl_compiler
from tests.support.stores import MACHINE_CACHE

PIN = "tilelang==0.1.15"
SOURCE = "k.py"


class TileLangProject(DslProject):
    """A folder with kernels in TileLang."""

    def described(self, flavour: str = "cpu", *targets: str) -> Mapping[str, KernelFunction]:
        return self.functions(self.kernel((SOURCE,), flavour), targets)

    def compiled(self, text: str, target: str) -> tuple[UnitImage, ...]:
        return self.launched(text, target).launches[0].compiled

    def launched(self, text: str, target: str) -> ResolvedOp:
        """An op with its objects, ready for a launcher."""
        flavour = "cpu" if target == "cpu" else "rocm" if "gfx" in target else "cuda13"
        kernel = self.kernel((SOURCE,), flavour)
        op, joined = self._joined(text, kernel)
        launches = (replace(joined.launch, autotune=False),)
        language = LANGUAGES.get("tilelang")
        units = language.expand(replace(op, launches=launches), [ImageTarget.parse(target)])
        wanted = [(unit, joined.bound) for unit in units]
        made = self.compiler.compile(kernel, self.folder, wanted)
        return ResolvedOp(op, (replace(joined, launch=launches[0], compiled=made),))

    def joined(self, text: str) -> OpSpec:
        """The op with its key."""
        op, joined = self._joined(text, self.kernel((SOURCE,), "cpu"))
        return with_autotune_key(op, [joined])[0]

    def _joined(self, text: str, kernel: DslKernel) -> tuple[OpSpec, ResolvedLaunch]:
        functions, place = self.functions(kernel, ()), IssueCollector(())
        read = self.op(f"[[kernel.k.op]]\n{text}", kernel)
        op = LANGUAGES.get("tilelang").complete(read, functions, place)
        assert op is not None, place.issues
        function = next(functions[n] for n in op.launches[0].functions if n in functions)
        why = "; ".join(function.notes)
        launch = with_candidates(op, op.launches[0], function.candidates, place, why)
        assert launch is not None, place.issues
        signatures = {n: one.parameters for n, one in functions.items()}
        bound = bind(op, launch, signatures, place)
        assert bound is not None, place.issues
        return op, ResolvedLaunch(op, launch, bound, function)


@contextmanager
def shop(
    folder: Path, source: str, *, keeps: bool = True, pin: str = PIN
) -> Iterator[TileLangProject]:
    with dsl_compiler(MACHINE_CACHE, keeps=keeps) as compiler:
        project = TileLangProject(compiler, folder, "tilelang", (pin,))
        project.write({SOURCE: source})
        yield project
