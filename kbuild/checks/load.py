"""The variant loads in a fresh process, with the `kernels` client where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.libraries import metadata_of
from kbuild.checks.readers.probing import Answer, ask
from kbuild.frameworks import FRAMEWORKS, Framework
from kbuild.run import LocalRunner, Runner


@CHECKS.add
class Load(Check):
    """Says `info` whenever it did not load: a check that silently skips proves nothing."""

    name = "load"
    summary = "The variant is imported in a fresh process."
    group = "load"
    slow = True
    runner: Runner = LocalRunner()

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding when it fails, or when this machine cannot tell."""
        metadata = metadata_of(output)
        if output.python is None:
            yield self._not_loaded("no interpreter was given", "pass one that has Torch")
        elif output.variant is None or metadata is None:
            yield self._not_loaded("its variant or its metadata is not known", "")
        else:
            framework = FRAMEWORKS.get(output.variant.framework)
            names = (str(output.variant), metadata.backend, metadata.id, framework.runtime_module)
            answer = self._ask(output.python, output.root, *names)
            if answer.state == "lacking":
                yield self._lacking(output.python, framework)
            else:
                yield from self._judge(answer)

    def _ask(self, python: Path, root: Path, *names: str) -> Answer:
        return ask(self.runner, python, "load_probe", str(root.resolve()), *names)

    def _judge(self, answer: Answer) -> Iterator[Finding]:
        if answer.state == "misfit":
            hint = "load it on a machine with that Torch, backend and CPU"
            yield self._not_loaded(answer.reason, hint)
        elif answer.state != "loaded":
            hint = "the lines above are the end of the traceback"
            what = f"cannot be loaded:\n{answer.reason}"
            yield Finding(self.name, "error", "__init__.py", what, hint)

    def _lacking(self, python: Path, framework: Framework) -> Finding:
        install = f"{python} -m pip install {framework.runtime_package}"
        reason = f"{python} has no {framework.runtime_module}"
        return self._not_loaded(reason, f"{install}, or `--python` with one that has it")

    def _not_loaded(self, reason: str, hint: str) -> Finding:
        return Finding(self.name, "info", "__init__.py", f"not loaded here: {reason}", hint)
