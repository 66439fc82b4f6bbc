"""The variant loads in a fresh process, with the `kernels` client where there is one, and works.

Its ops are called on small tensors (CPU variants), their fake kernels traced. Other interpreters
can be asked as well, and another version of the kernel can be there first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.libraries import metadata_of
from kbuild.checks.readers.loaded import Remark, differences, end_of, remarks_on
from kbuild.checks.readers.probing import Answer
from kbuild.frameworks import FRAMEWORKS, Framework
from kbuild.metadata import Metadata
from kbuild.run import LocalRunner, Runner
from kbuild.variant import Variant


@CHECKS.add
class Load(Check):
    """Says `info` whenever it did not load: a check that silently skips proves nothing."""

    name = "load"
    summary = "The variant is imported in a fresh process, and its ops survive a call."
    group = "load"
    slow = True
    runner: Runner = LocalRunner()
    limit_s: float = 60
    """Seconds after which a call of an op hangs."""

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding when it fails, or when this machine cannot tell; more about its ops."""
        metadata = metadata_of(output)
        if output.python is None:
            yield self._not_loaded("no interpreter was given", "pass one that has Torch")
        elif output.variant is None or metadata is None:
            yield self._not_loaded("its variant or its metadata is not known", "")
        else:
            yield from self._load(output, output.python, _Kernel(output, output.variant, metadata))

    def facts(self, output: Output) -> Mapping[str, Any]:
        """`{"remembered": interpreters}`: those that loaded exactly this before."""
        return output.memory.said_of("load_probe", output.root)

    def _load(self, output: Output, python: Path, kernel: _Kernel) -> Iterator[Finding]:
        alone = self._ask(python, kernel)
        yield from self._judge(alone, python, kernel)
        if output.beside is not None and alone.state == "loaded":
            yield from self._load_beside(alone, output.beside, python, kernel)
        for other in output.other_pythons:
            for finding in self._judge(self._ask(other, kernel), other, kernel):
                yield replace(finding, what=f"under {other}: {finding.what}")

    def _load_beside(
        self, alone: Answer, other: Path, python: Path, kernel: _Kernel
    ) -> Iterator[Finding]:
        metadata = metadata_of(Output(other, None))
        if metadata is None or metadata.id == kernel.metadata.id:
            why = "has the same id" if metadata else "has no metadata"
            yield self._not_loaded(f"beside {other}, which {why}", "give another version's folder")
            return
        answer = self._ask(python, kernel, other, metadata.id)
        if answer.state == "alone":
            reason = f"beside {other}, which cannot be loaded:\n{answer.reason}"
            yield self._not_loaded(reason, "give a version that fits this machine")
        elif answer.state == "loaded":
            yield from self._findings(differences(alone, answer))
        else:
            for finding in self._judge(answer, python, kernel):
                yield replace(finding, what=f"beside {other}: {finding.what}")

    def _ask(self, python: Path, kernel: _Kernel, *other: str | Path) -> Answer:
        arguments = (*kernel.arguments, str(self.limit_s), *other)
        memory, general = kernel.output.memory, kernel.general
        return memory.ask(self.runner, python, "load_probe", *arguments, general=general)

    def _judge(self, answer: Answer, python: Path, kernel: _Kernel) -> Iterator[Finding]:
        if answer.state == "loaded":
            yield from self._findings(remarks_on(answer, kernel.metadata.id))
        elif answer.state == "lacking":
            yield self._lacking(python, kernel.framework)
        elif answer.state == "misfit":
            hint = "load it on a machine with that Torch, backend and CPU"
            yield self._not_loaded(answer.reason, hint)
        elif answer.state in ("died", "hung") and "`" in answer.doing:
            yield self._crash(answer)
        else:
            hint = "the lines above are the end of the traceback"
            hangs = ", importing it does not end" if answer.state == "hung" else ""
            what = f"cannot be loaded{hangs}:\n{answer.reason}"
            yield Finding(self.name, "error", "__init__.py", what, hint)

    def _crash(self, answer: Answer) -> Finding:
        """A warning: what an op may assume of its arguments is its author's to say."""
        hangs = answer.state == "hung"
        how = "did not return" if hangs else f"crashed: the process {end_of(answer.returncode)}"
        hint = "check sizes, dtypes and devices before using pointers: any caller can do the same"
        what = f"{answer.doing} {how}\n{answer.reason.partition(chr(10))[2]}".rstrip()
        return Finding(self.name, "warning", "_ops.py", what, hint)

    def _findings(self, remarks: Iterator[Remark]) -> Iterator[Finding]:
        for remark in remarks:
            yield Finding(self.name, remark.severity, "_ops.py", remark.what, remark.hint)

    def _lacking(self, python: Path, framework: Framework) -> Finding:
        install = f"{python} -m pip install {framework.runtime_package}"
        reason = f"{python} has no {framework.runtime_module}"
        return self._not_loaded(reason, f"{install}, or `--python` with one that has it")

    def _not_loaded(self, reason: str, hint: str) -> Finding:
        return Finding(self.name, "info", "__init__.py", f"not loaded here: {reason}", hint)


@dataclass(frozen=True)
class _Kernel:
    """What is loaded."""

    output: Output
    variant: Variant
    metadata: Metadata

    @property
    def framework(self) -> Framework:
        return FRAMEWORKS.get(self.variant.framework)

    @property
    def arguments(self) -> tuple[str | Path, ...]:
        """As `load_probe.py` takes them."""
        variant, backend, module = self.general
        return (self.output.root, variant, backend, self.metadata.id, module)

    @property
    def general(self) -> tuple[str, str, str]:
        """What decides whether a variant of any kernel fits an interpreter."""
        return str(self.variant), self.metadata.backend, self.framework.runtime_module
