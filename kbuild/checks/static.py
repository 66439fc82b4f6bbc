"""No second copy of a library that the process has already."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Check, Finding, Output, Severity
from kbuild.checks.readers.elf import ElfFile, UnreadableBinaryError
from kbuild.checks.readers.libraries import elf_libraries, has_libraries, some
from kbuild.checks.readers.policies import matches
from kbuild.checks.readers.traces import Trace, traces


@CHECKS.add
class Static(Check):
    """Two copies of libstdc++ do not catch each other's exceptions; two CUDA runtimes load twice.

    kbuild's own manylinux link adds what a newer libstdc++ has and the policy's has not. None of
    that is among the traces, which are of functions and texts that every libstdc++ has.
    """

    name = "static"
    summary = "No statically linked libstdc++, libgcc, CUDA runtime or Python."
    group = "abi"

    def applies(self, output: Output) -> bool:
        """Only where there are libraries."""
        return has_libraries(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per file and library inside it."""
        framework = output.variant.framework if output.variant else "torch"
        for where, elf in elf_libraries(output):
            try:
                found = traces(output.root / where)
            except UnreadableBinaryError as error:
                yield Finding(self.name, "error", where, str(error), "rebuild the variant")
                continue
            for trace in found:
                if framework in trace.library["frameworks"]:
                    what = f"has {trace.library['name']} inside: {_evidence(trace, elf)}"
                    severity, hint = _severity(trace, elf), trace.library["hint"]
                    yield Finding(self.name, severity, where, what, hint, trace.symbols)


def _shared(trace: Trace, elf: ElfFile) -> str | None:
    """The shared form of the library, where the file needs that too."""
    shared = tuple(trace.library["shared"])
    return next((library for library in elf.needed if matches(library, shared)), None)


def _severity(trace: Trace, elf: ElfFile) -> Severity:
    """A text alone may be somebody's own when the shared library is there."""
    severity: Severity = trace.library["severity"]
    return severity if trace.symbols or not _shared(trace, elf) else "warning"


def _evidence(trace: Trace, elf: ElfFile) -> str:
    proof = f"it defines {some(list(trace.symbols), 3)}" if trace.symbols else ""
    proof = proof or f"its data holds {some(list(trace.texts))}"
    shared = _shared(trace, elf)
    return f"{proof}, and it needs `{shared}` as well" if shared else proof
