"""The interface of checks: their input `Output`, and their `Finding`s."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from kbuild.checks.policies import CheckLimits
from kbuild.checks.probe_cache import ProbeCache
from kbuild.plan.metadata import METADATA_FILE
from kbuild.project.variant import System, Variant
from kbuild.system.errors import DamagedFileError
from kbuild.system.progress import report_current_work
from kbuild.system.registry import Registry
from kbuild.system.untrusted import reason_of

__all__ = [
    "CHECKS", "SOURCE_CHECKS", "Check", "CheckLimits", "Finding", "Group", "Output", "Severity",
    "run_checks",
]  # fmt: skip

SOURCE_CHECKS: Mapping[str, str] = {
    "flags": "No compiler flag makes code for the machine that builds.",
    "pointers": "No pointer into a temporary tensor of the stable ABI is kept.",
}
"""Checks of a project's sources; the names of checks of outputs (`CHECKS`) differ from theirs."""

# By name, as linkers do: `x.so`, `libx.so.1`, `x.pyd`, `x.dylib`, `x.dll`.
_LIBRARY = re.compile(r"\.(?:so(?:\.\d+)*|pyd|dylib|dll)$")

Severity = Literal["error", "warning", "info"]
Group = Literal["files", "meta", "code", "abi", "archs", "load", "other"]
LIBRARY_GROUPS: tuple[Group, ...] = ("abi", "archs")


@dataclass(frozen=True)
class Finding:
    """One result of a check."""

    check: str
    severity: Severity
    where: str
    """File relative to the variant, with `:line` where there is one."""
    what: str
    hint: str = ""
    symbols: tuple[str, ...] = ()
    """Every symbol that it is about; `what` names the first few."""
    objects: tuple[str, ...] = ()
    """Sources whose object files contribute it, if the build tree is known."""
    overruled: str = ""
    """Reason of its author to overrule the check; it would be an error otherwise."""

    def __str__(self) -> str:
        allowed = f", overruled: {self.overruled}" if self.overruled else ""
        text = f"{self.where}: {self.what}{self._origin()} [{self.check}{allowed}]"
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def with_note(self, note: str) -> Finding:
        """The finding with a note after its message."""
        return replace(self, what=f"{self.what}{note}")

    def _origin(self) -> str:
        return f" (brought in by {', '.join(self.objects)})" if self.objects else ""

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Output:
    """A variant directory, staged or built, and what is known about it."""

    root: Path
    """The folder that holds `__init__.py`, `_ops.py`, `metadata.json` and the extension."""
    variant: Variant | None
    """None when the folder's name is not a variant name."""
    python: Path | None = None
    """Interpreter for checks that import the kernel; None skips them with an `info` finding."""
    redistributable: bool = False
    """True when the toolchain promises a portable binary: a broken ceiling is then an error."""
    asked: CheckLimits = field(default_factory=CheckLimits)
    """The limits that somebody chose; checks read `limits`, where the others are filled in."""
    tree: Path | None = None
    """Folder with the object files that the libraries were linked from, where it is known."""
    alone: Path | None = None
    """The only library to check; files around it are ignored."""
    other_pythons: tuple[Path, ...] = ()
    """Interpreters, with other Torch releases say, that have to load the kernel as well."""
    probe_cache: ProbeCache = field(default_factory=ProbeCache)
    """Starts probes in interpreters, or repeats what they answered."""
    built_elsewhere: bool = False
    """True for code that another user or machine built: nothing imports it unless
    `loads_foreign`."""
    loads_foreign: bool = False

    @property
    def is_barred(self) -> bool:
        """True for code that the user did not ask to run."""
        return self.built_elsewhere and not self.loads_foreign

    @property
    def limits(self) -> CheckLimits:
        """Every limit, the ones that nobody chose from what the variant's name promises."""
        return self.asked.filled(self.variant)

    @property
    def system(self) -> System | None:
        """The system that the variant is compiled for; None when unknown or nothing is compiled."""
        return self.variant.system if self.variant else None

    @property
    def object_tree(self) -> Path:
        """Folder of the object files, which may not exist: a variant knows where it was built."""
        from kbuild.system.workspace import Workspace

        return self.tree or Workspace(self.root.parent.parent, self.root.name).tree

    def libraries(self) -> Iterator[Path]:
        """Shared libraries of the folder in path order, or the one that is looked at alone."""
        if self.alone is not None:
            return iter((self.alone,))
        return (path for path in sorted(self.root.rglob("*")) if is_library(path))

    def python_files(self) -> Iterator[Path]:
        """Python sources in the folder, in path order."""
        return (path for path in sorted(self.root.rglob("*.py")) if path.is_file())

    def name_of(self, path: Path) -> str:
        """`path` relative to the folder, with `/`."""
        return path.relative_to(self.root).as_posix()


def is_library(path: Path) -> bool:
    """True for a file that is named as linkers name shared libraries."""
    return _LIBRARY.search(path.name) is not None and path.is_file()


class Check:
    """Base of all checks."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One sentence: what the check proves."""
    group: ClassVar[Group] = "other"
    """The column of tables that it counts in. Checks of `abi` and `archs` read libraries alone:
    `check --abi` runs only them, and so does a check of a single library."""
    slow: ClassVar[bool] = False
    """True for checks that start processes."""
    is_certain: ClassVar[bool] = False
    """True for checks whose errors are failures on every machine: messages do not offer to overrule
    them."""
    protects: ClassVar[bool] = False
    """True for checks that protect those who load the kernel: its author cannot overrule them."""

    def applies(self, output: Output) -> bool:
        """False when the check does not concern this output."""
        return True

    def run(self, output: Output) -> Iterable[Finding]:
        """Yield what was found; nothing when the check passes."""
        raise NotImplementedError

    def facts(self, output: Output) -> Mapping[str, Any]:
        """Measurements, as a JSON object; most checks measure nothing."""
        return {}


class LibraryCheck(Check):
    """Base of the checks of libraries; they concern outputs that have some."""

    group: ClassVar[Group] = "abi"
    os: ClassVar[str] = ""
    """The only system that it is for, besides an unknown one; empty for every system."""

    def applies(self, output: Output) -> bool:
        """See `Check.applies`."""
        fits = not self.os or output.system is None or output.system.os == self.os
        return fits and next(output.libraries(), None) is not None


class MetadataFileCheck(Check):
    """Base of the checks of metadata; `layout` reports a missing file."""

    group: ClassVar[Group] = "meta"

    def applies(self, output: Output) -> bool:
        """See `Check.applies`."""
        return (output.root / METADATA_FILE).is_file()


CHECKS: Registry[Check] = Registry("kbuild.checks")


def run_checks(output: Output, *, slow: bool = True) -> tuple[Finding, ...]:
    """Run every check that applies, plug-ins included, by name; no finding is overruled yet."""
    return tuple(
        finding
        for check in CHECKS.load(plugins=True)
        if slow or not check.slow
        for finding in findings_of(check, output) or ()
    )


def findings_of(check: Check, output: Output) -> tuple[Finding, ...] | None:
    """The findings of a check; None when it does not concern the output.

    A file that cannot be read is a finding: nothing is proven of it.
    """
    report_current_work(f"{check.name}: {output.root.name}")
    try:
        return tuple(check.run(output)) if check.applies(output) else None
    except DamagedFileError as error:
        where, what = ".", error.message
    except (RecursionError, MemoryError) as error:
        where, what = ".", f"a file cannot be parsed: {reason_of(error)}"
    except OSError as error:
        where, what = _name_of_file(error, output), f"cannot be read: {error.strerror or error}"
    hint = "it was not checked: replace the file, or build the variant again"
    return (Finding(check.name, "error", where, what, hint),)


def _name_of_file(error: OSError, output: Output) -> str:
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    if path is None or not path.is_relative_to(output.root):
        return str(path or ".")
    return output.name_of(path)
