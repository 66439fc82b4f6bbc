"""Which seeded faults the checks find, beside what `kernel_abi_check` finds of them.

    python benchmarks/seeded.py [--save] [--json | --markdown] [--built DIR ...]

Makes every variant of `tests/seeded` in a folder of its own and examines it: kbuild by all checks,
`kernel_abi_check` (the PyPI module, which is what the reference checker is made of) by each of its
functions that is for the file's format, with the same limits. The seconds are those of kbuild's
checks on the case, in this process; cases that start another Python take longer. DIR is a kernel
that was built, all of whose variants are compared as well: on a good library neither may find
anything, and they have to name the same symbols when asked for the oldest policy and CPython 3.2.

Needs g++, `pip install 'kbuild[test]'`; exit code 1 when a fault is missed, a finding is
false, or `kernel_abi_check` names something that kbuild does not.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from report import save

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import kernel_abi_check  # noqa: E402

from kbuild.checks import CheckLimits, Finding  # noqa: E402
from kbuild.checks.base import is_library  # noqa: E402
from kbuild.system.version import Version  # noqa: E402
from tests.seeded.make import good_cases  # noqa: E402
from tests.seeded.seeded_recipe import Case  # noqa: E402
from tests.seeded.seeded_table import CASES  # noqa: E402
from tests.seeded.seeded_variants import make_case  # noqa: E402
from tests.seeded.seeded_verdict import findings_in, is_found, strangers  # noqa: E402

JUDGED_BY_BOTH = {"manylinux", "python-abi", "macos"}
REFUSED = "refused: "
USUAL = CheckLimits().filled(None)
OLDEST = "manylinux_2_5" if platform.machine() == "x86_64" else "manylinux_2_17"
STRICT = replace(USUAL, manylinux=OLDEST, python_abi=Version((3, 2)))


@dataclass(frozen=True)
class Row:
    """One seeded case."""

    case: str
    wrong: str
    check: str
    """kbuild's check that is meant to find it."""
    found: bool
    strangers: int
    """Findings of other checks than those that it concerns."""
    other: str
    """What `kernel_abi_check` says; empty when it finds nothing."""
    only_other: tuple[str, ...]
    """What it names, and no finding of kbuild's does."""
    only_kbuild: tuple[str, ...]
    """Symbols that kbuild names in answer to the questions of both, and it does not."""
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """A good variant, judged by both."""

    name: str
    findings: tuple[str, ...]
    """kbuild's errors and warnings, from all checks."""
    kbuild: tuple[str, ...]
    """What kbuild names in answer to the questions of both, under the usual limits."""
    other: tuple[str, ...]
    """What `kernel_abi_check` names."""
    strict_kbuild: tuple[str, ...]
    """The same under limits so old that there is a lot to name."""
    strict_other: tuple[str, ...]

    @property
    def agree(self) -> bool:
        """Whether both name the same, under either limits."""
        return self.kbuild == self.other and self.strict_kbuild == self.strict_other


def rows(folder: Path) -> list[Row]:
    """Every case, made and examined."""
    return [_row(case, make_case(case, folder)) for case in CASES]


def _row(case: Case, made: Path) -> Row:
    began = time.perf_counter()
    found = findings_in(made, case.limits, load=case.loads)
    seconds = time.perf_counter() - began
    other = [word for path in libraries(made) for word in by_other(path)]
    return Row(
        case=case.name,
        wrong=case.wrong,
        check=case.check,
        found=is_found(case, found),
        strangers=len(strangers(case, found)),
        other=", ".join(other),
        only_other=tuple(word for word in other if not _is_named(word, found)),
        only_kbuild=tuple(sorted(_asked_symbols(found) - set(other))),
        seconds=round(seconds, 3),
    )


def _is_named(word: str, findings: Iterable[Finding]) -> bool:
    if word.startswith(REFUSED):
        return any(finding.check == "binary" for finding in findings)
    return any(word in finding.symbols or word in finding.what for finding in findings)


def _asked_symbols(findings: Iterable[Finding]) -> set[str]:
    return {name for f in findings if f.check in JUDGED_BY_BOTH for name in f.symbols}


def by_other(path: Path, limits: CheckLimits = USUAL) -> Iterator[str]:
    """What `kernel_abi_check` names: symbols, versions of macOS, or why it stops."""
    try:
        file = kernel_abi_check.ObjectFile(path)
        kind = file.format()
        faults: list[Any] = [*file.check_python_abi(str(limits.python_abi))]
        if kind == kernel_abi_check.BinaryFormat.ELF:
            faults += file.check_manylinux(limits.manylinux)
        if kind == kernel_abi_check.BinaryFormat.MACH_O:
            faults += file.check_macos(str(limits.macos))
    except (OSError, ValueError) as error:
        yield f"{REFUSED}{type(error).__name__}"
        return
    for fault in faults:
        yield getattr(fault, "name", None) or getattr(fault, "version", None) or str(fault)


def libraries(folder: Path) -> Iterable[Path]:
    """Libraries of a variant's folder."""
    return (path for path in sorted(folder.rglob("*")) if is_library(path))


def comparisons(folder: Path, built: Sequence[Path]) -> list[Comparison]:
    """Good seeded variants, then those of the kernels that were built."""
    made = [(case.name, make_case(case, folder)) for case in good_cases()]
    for kernel in built:
        roots = sorted(path for path in (kernel / "build").iterdir() if path.is_dir())
        made += [(f"{kernel.name}: {root.name}", root) for root in roots]
    return [_comparison(name, root) for name, root in made]


def _comparison(name: str, root: Path) -> Comparison:
    found = findings_in(root)
    strict = findings_in(root, replace(STRICT, macos=None))
    return Comparison(
        name=name,
        findings=tuple(map(str, found)),
        kbuild=symbols_of(found),
        other=names_by_other(root, USUAL),
        strict_kbuild=symbols_of(strict),
        strict_other=names_by_other(root, STRICT),
    )


def names_by_other(root: Path, limits: CheckLimits) -> tuple[str, ...]:
    """What `kernel_abi_check` names in a variant, each once."""
    return tuple(sorted({word for path in libraries(root) for word in by_other(path, limits)}))


def symbols_of(findings: Iterable[Finding]) -> tuple[str, ...]:
    """What the checks name that answer `kernel_abi_check`'s questions, each once."""
    asked = [finding for finding in findings if finding.check in JUDGED_BY_BOTH]
    return tuple(sorted({word for f in asked for word in f.symbols or (f.what,)}))


def result_of(folder: Path, built: Sequence[Path]) -> dict[str, Any]:
    """Everything that was measured."""
    table, good = rows(folder), comparisons(folder, built)
    missed = [row for row in table if not row.other]
    return {
        "kernel_abi_check": kernel_abi_check.__version__,
        "lld": shutil.which("ld.lld") is not None,
        "cases": len(table),
        "found": sum(row.found for row in table),
        "found_by_kernel_abi_check": len(table) - len(missed),
        "named_by_kernel_abi_check_alone": [row.case for row in table if row.only_other],
        "strangers": sum(row.strangers for row in table),
        "good": len(good),
        "false_findings": sum(len(entry.findings) for entry in good),
        "agree_on_good": sum(entry.agree for entry in good),
        "symbols_both_name": sum(len(entry.strict_other) for entry in good),
        "missed_by_kernel_abi_check": [row.case for row in missed],
        "missed_though_its_question": [row.case for row in table if row.only_kbuild],
        "rows": [asdict(row) for row in table],
        "comparisons": [asdict(entry) for entry in good],
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The table of the documentation."""
    lines = ["| case | what is wrong | found by | kernel_abi_check |", "|---|---|---|---|"]
    for row in result["rows"]:
        found = f"`{row['check']}`" if row["found"] else "**missed**"
        other = f"`{row['other'].split(', ')[0]}`" if row["other"] else ""
        other = "refuses the file" if row["other"].startswith(REFUSED) else other
        lines.append(f"| {row['case']} | {row['wrong']} | {found} | {other} |")
    return "\n".join(lines)


def plain(result: Mapping[str, Any]) -> str:
    """The same in columns, with seconds and counts."""
    lines = [f"{'case':<30} {'kbuild':<16} {'s':>6}  kernel_abi_check"]
    for row in result["rows"]:
        found = row["check"] if row["found"] else "MISSED"
        other = row["other"] if len(row["other"]) < 60 else f"{row['other'][:57]}..."
        lines.append(f"{row['case']:<30} {found:<16} {row['seconds']:>6.3f}  {other or '-'}")
    for entry in result["comparisons"]:
        pairs = (("kbuild", "other"), ("strict_kbuild", "strict_other"))
        apart = [set(entry[mine]) ^ set(entry[its]) for mine, its in pairs]
        words = f"apart in {apart}" if any(apart) else "agree"
        count = len(entry["strict_other"])
        lines.append(
            f"good: {entry['name']}: {len(entry['findings'])} findings, {words}, "
            f"also on {count} symbols newer than {OLDEST}"
        )
    lines.append(
        f"{result['found']} of {result['cases']} found, "
        f"{len(result['named_by_kernel_abi_check_alone'])} where kernel_abi_check names more, "
        f"{result['found_by_kernel_abi_check']} by kernel_abi_check "
        f"{result['kernel_abi_check']}; {result['false_findings']} false findings on "
        f"{result['good']} good variants, of which {result['agree_on_good']} agree"
    )
    return "\n".join(lines)


def main() -> int:
    """Exit code 1 when something was missed, found where nothing is, or the two disagree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/seeded.json")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="print the table of the docs")
    parser.add_argument("--built", type=Path, nargs="*", default=[], metavar="DIR")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = result_of(Path(name), args.built)
    if args.save:
        save("seeded", result)
    text = json.dumps(result, indent=1) if args.json else plain(result)
    print(markdown(result) if args.markdown else text)
    wrong = result["strangers"] + result["false_findings"]
    wrong += len(result["named_by_kernel_abi_check_alone"])
    wrong += result["good"] - result["agree_on_good"]
    return int(bool(wrong) or result["found"] < result["cases"])


if __name__ == "__main__":
    sys.exit(main())
