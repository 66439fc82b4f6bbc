"""The variant loads in a fresh process, with the `kernels` client where there is one, and works.

The check calls ops of CPU variants on small tensors, and traces fake kernels. A package of
`python-depends` that is not installed here is a note, and so is a module that only Torch for GPUs
brings; a device that is not here is a warning.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild.backends import BACKENDS
from kbuild.backends.frameworks import FRAMEWORKS, Framework
from kbuild.checks.base import CHECKS, Check, Finding, Output, Severity
from kbuild.checks.depends import declared, hint_on
from kbuild.checks.libraries import first_names, metadata_of
from kbuild.checks.policies import load_data
from kbuild.checks.probe_process import ProbeAnswer, is_sandboxed
from kbuild.plan.metadata import Metadata
from kbuild.project.variant import Variant
from kbuild.system.emulator import emulator_variable
from kbuild.system.processes import LocalRunner, Runner

Facts = Mapping[str, Any]
_SHOWN_NAMES = 5


@dataclass(frozen=True)
class LoadRemark:
    """One thing to say about the ops of a loaded kernel."""

    severity: Severity
    what: str
    hint: str = ""
    where: str = "_ops.py"
    check: str = "load"


def remarks_on_ops(answer: ProbeAnswer, identifier: str) -> Iterator[LoadRemark]:
    """Everything to say about a kernel that was loaded under that id."""
    ops: Mapping[str, Facts] = answer.facts.get("ops", {})
    yield from _namespace_remarks(answer.facts.get("registrations", ()), identifier)
    yield from _definition_remarks(ops)
    for name, about in ops.items():
        yield from _shape_remarks(name, about)
    left_out = [reason for name, about in ops.items() for reason in _untried(name, about)]
    if left_out:
        yield LoadRemark("info", f"not every op could be tried: {'; '.join(left_out)}")
    if answer.returncode:
        what = f"works, but afterwards the process {describe_exit(answer.returncode)}"
        yield LoadRemark("warning", what, "look at destructors of static objects")


def describe_exit(returncode: int) -> str:
    """The end of a process, as text."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"ended with {signal.Signals(-returncode).name}"
    except ValueError:
        return f"ended with signal {-returncode}"


def _namespace_remarks(registrations: Iterable[Facts], identifier: str) -> Iterator[LoadRemark]:
    """Registrations outside the kernel's namespace, as findings of the check `ops`."""
    by_place: dict[tuple[str, str], list[str]] = {}
    for one in registrations:
        names = by_place.setdefault((str(one["where"]), str(one["through"])), [])
        if one["what"] not in names:
            names.append(str(one["what"]))
    for (where, through), names in by_place.items():
        is_library = "::" in names[0]
        verb, hint = (
            ("registers", "open `TORCH_EXTENSION_NAME` with `TORCH_LIBRARY_EXPAND`")
            if is_library
            else ("opens", "name ops by `add_op_namespace_prefix` and libraries by `ops.name`")
        )
        shown = first_names(names, _SHOWN_NAMES)
        what = f"{verb} {shown} outside the kernel's namespace `{identifier}`"
        if through:
            yield LoadRemark("warning", f"{what}, through {through}", hint, where, "ops")
        else:
            yield LoadRemark("error", what, hint, where, "ops")


def _definition_remarks(ops: Mapping[str, Facts]) -> Iterator[LoadRemark]:
    """Every op is defined, and has a kernel."""
    for name, about in ops.items():
        if about["schema"] is None:
            what = f"`{name}` has kernels, but is not defined"
            yield LoadRemark("error", what, f'`ops.def("{name}(...) -> ...")` in the binding')
        elif not about["kernel"]:
            what = f"`{name}` has no kernel for the device that the variant is for"
            yield LoadRemark("warning", what, "`TORCH_LIBRARY_IMPL_EXPAND` registers one")


def _shape_remarks(name: str, about: Facts) -> Iterator[LoadRemark]:
    """The fake kernel answers with the shapes of the real one."""
    real, fake = about.get("call", {}), about.get("fake", {})
    inputs = (real.get("given"), fake.get("given"))
    shapes = (real.get("shapes"), fake.get("shapes"))
    is_known = inputs[0] == inputs[1] is not None and "?" not in str(shapes[1])
    if is_known and shapes[0] != shapes[1]:
        answers = [
            ", ".join(f"{kind.removeprefix('torch.')}{list(shape)}" for kind, *shape in tensors)
            for tensors in shapes
        ]
        what = f"`{name}` returns {answers[0]}, its fake kernel {answers[1]}"
        yield LoadRemark("warning", what, "`torch.compile` relies on the fake kernel")


def _untried(name: str, about: Facts) -> Iterator[str]:
    for kind, suffix in (("call", ""), ("fake", " (its fake kernel)")):
        answer = about.get(kind, {})
        reason = answer.get("skipped") or answer.get("refused")
        if reason:
            yield f"`{name}`{suffix}: {reason}"


NOT_LOADED = "not loaded: built elsewhere, or changed since it was built here"
LOADS_IT = "`--load` loads it, which runs its code"
_UNPROTECTED = (
    "loaded without a sandbox: its code could read your files and use the network, because "
    "`bwrap` is missing, turned off, or does not work here"
)


@CHECKS.add
class LoadCheck(Check):
    """Says `info` whenever it did not load: a check that silently skips proves nothing."""

    name = "load"
    summary = "A new process can import the variant, and its ops can be called without a crash."
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
        elif output.variant is None or metadata is None or not BACKENDS.find(metadata.backend):
            yield self._not_loaded("its variant, its metadata or its backend is not known", "")
        elif output.is_barred:
            yield Finding(self.name, "info", "__init__.py", NOT_LOADED, LOADS_IT)
        else:
            yield from self._load(output, output.python, _Kernel(output, output.variant, metadata))

    def _load(self, output: Output, python: Path, kernel: _Kernel) -> Iterator[Finding]:
        yield from self._findings_of(self._ask(python, kernel), python, kernel)
        if output.built_elsewhere and output.loads_foreign and not is_sandboxed():
            yield Finding(self.name, "info", "__init__.py", _UNPROTECTED, "install bubblewrap")
        for other in output.other_pythons:
            for finding in self._findings_of(self._ask(other, kernel), other, kernel):
                yield replace(finding, what=f"under {other}: {finding.what}")

    def _ask(self, python: Path, kernel: _Kernel) -> ProbeAnswer:
        arguments = (*kernel.arguments, str(self.limit_s))
        return kernel.output.probe_cache.ask(
            self.runner, python, "load_probe", *arguments, system=kernel.variant.system
        )

    def _findings_of(self, answer: ProbeAnswer, python: Path, kernel: _Kernel) -> Iterator[Finding]:
        if answer.state == "loaded":
            yield from self._findings(remarks_on_ops(answer, kernel.metadata.id))
        elif answer.state == "lacking":
            yield self._lacking(python, kernel, answer.reason)
        elif answer.state == "foreign":
            hint = (
                f"check it there, or name an emulator in {emulator_variable(kernel.variant.system)}"
            )
            yield Finding(self.name, "info", "__init__.py", f"not run: {answer.reason}", hint)
        elif answer.state == "misfit":
            hint = "load it on a machine with that Torch, backend and CPU"
            yield self._not_loaded(answer.reason, hint)
        elif answer.state in ("died", "hung") and "`" in answer.doing:
            yield self._crash(answer)
        elif missing := answer.facts.get("missing"):
            yield self._missing(str(missing).partition(".")[0], answer, kernel)
        elif answer.facts.get("deviceless"):
            what = f"cannot be loaded without a device:\n{answer.reason}"
            hint = "query devices when an op is called, not while the kernel is imported"
            yield Finding(self.name, "warning", "__init__.py", what, hint)
        else:
            hint = "the lines above are the end of the traceback"
            if answer.sandboxed:
                hint += "; KBUILD_SANDBOX=off loads it without a sandbox"
            hangs = ", because the import does not finish" if answer.state == "hung" else ""
            what = f"cannot be loaded{hangs}:\n{answer.reason}"
            yield Finding(self.name, "error", "__init__.py", what, hint)

    def _missing(self, module: str, answer: ProbeAnswer, kernel: _Kernel) -> Finding:
        """The finding on a module that was not found, by the package that should provide it.

        A module that only Torch for another device has is there for some users.
        """
        metadata = kernel.metadata
        if module in load_data("modules")["backends"].get(metadata.backend, ()):
            torch = f"Torch {answer.facts.get('torch', '')}".strip()
            what = f"cannot be loaded with {torch}, which has no `{module}`"
            hint = (
                f"import `{module}` in the functions that need it, or catch ImportError: only "
                "some releases of Torch have it"
            )
            # Users of a GPU variant have a Torch for that GPU, which brings the module.
            severity: Severity = "warning" if BACKENDS.get(metadata.backend).runs_on_cpu else "info"
            return Finding(self.name, severity, "__init__.py", what, hint)
        what = f"cannot be loaded:\n{answer.reason}"
        hint = hint_on(module, metadata)
        if module == metadata.python_name:
            hint = "import the kernel's own files relatively: `from .x import y`"
        return Finding(self.name, "error", "__init__.py", what, hint)

    def _crash(self, answer: ProbeAnswer) -> Finding:
        """A warning: what an op may assume of its arguments is its author's to say."""
        hangs = answer.state == "hung"
        how = (
            "did not return"
            if hangs
            else f"crashed: the process {describe_exit(answer.returncode)}"
        )
        hint = "check sizes, dtypes and devices before using pointers: any caller can do the same"
        what = f"{answer.doing} {how}\n{answer.reason.partition(chr(10))[2]}".rstrip()
        return Finding(self.name, "warning", "_ops.py", what, hint)

    def _findings(self, remarks: Iterator[LoadRemark]) -> Iterator[Finding]:
        for remark in remarks:
            where, what = remark.where, remark.what
            yield Finding(remark.check, remark.severity, where, what, remark.hint)

    def _lacking(self, python: Path, kernel: _Kernel, module: str) -> Finding:
        framework = kernel.framework
        packages = {**dict(kernel.needs), framework.runtime_module: framework.runtime_package}
        install = f"{python} -m pip install {packages.get(module, module)}"
        return self._not_loaded(
            f"{python} has no {module}", f"{install}, or `--python` with one that has it"
        )

    def _not_loaded(self, reason: str, hint: str) -> Finding:
        return Finding(self.name, "info", "__init__.py", f"not loaded here: {reason}", hint)


@dataclass(frozen=True)
class _Kernel:
    """The kernel that is loaded."""

    output: Output
    variant: Variant
    metadata: Metadata

    @property
    def needs(self) -> tuple[tuple[str, str], ...]:
        """The modules of its `python-depends`, each with its distribution on PyPI."""
        return declared(self.metadata)

    @property
    def framework(self) -> Framework:
        return FRAMEWORKS.get(self.variant.framework)

    @property
    def arguments(self) -> tuple[str | Path, ...]:
        """The arguments of `load_probe.py`."""
        modules = (self.framework.runtime_module, *(module for module, _ in self.needs))
        backend = json.dumps(BACKENDS.get(self.metadata.backend).probe_facts())
        identifier = self.metadata.id
        return (self.output.root, str(self.variant), backend, identifier, ",".join(modules))
