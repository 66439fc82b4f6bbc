"""`kbuild tune --import`: reads NineToothed's CSV, or JSON with a configuration for each M.

Entries become rows for the project's ops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild import manual_page
from kbuild.config.issue import did_you_mean, listed
from kbuild.config.locate import LineIndex, problem_at
from kbuild.errors import ConfigError, DamagedFileError, Problem, UsageError
from kbuild.matrix import arch_of_gpu
from kbuild.ops.captured_launches import captured_sections
from kbuild.ops.dialects import DIALECTS
from kbuild.ops.expression import EvaluationError, Expression, ExpressionError, parse
from kbuild.ops.model import Candidate, OpSpec, Scalar
from kbuild.ops.section import read_section
from kbuild.ops.tuned_tables import TunedRow, candidate_toml, same_pairs
from kbuild.runtime.untrusted import parse_json, parse_toml, read_bytes, reading, reason_of
from kbuild.sourcetree import SourceTree

_DEVICE = "device_name"
_PAIR = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>[^,]+)")
_SIZE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class ImportedConfig:
    """One configuration."""

    call: Mapping[str, int]
    """Names of numbers of the call -> values."""
    config: Mapping[str, Scalar]
    line: int = 0


@dataclass(frozen=True)
class ImportedTable:
    """What a file says."""

    path: str
    entries: tuple[ImportedConfig, ...]
    device: str = ""
    """The device that the file's name says."""


def read_import(path: Path, columns: Sequence[str], constants: Sequence[str]) -> ImportedTable:
    """Read a `.json` or a `.csv` file.

    For a CSV, `columns` and `constants` name the numbers in the two lines of each pair.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with reading(path, "a table"):
            text = read_bytes(path, "a table").decode("utf-8")
    except (OSError, DamagedFileError) as error:
        raise _problem(path, 0, reason_of(error)) from error
    if path.suffix == ".csv":
        return ImportedTable(str(path), tuple(_pairs(path, text, columns, constants)))
    named = {match["name"]: match["value"] for match in _PAIR.finditer(path.stem)}
    fixed = {name: int(value) for name, value in named.items() if _SIZE.fullmatch(value)}
    entries = tuple(_by_m(path, text, fixed))
    return ImportedTable(str(path), entries, named.get(_DEVICE, "").replace("_", " "))


def arch_of(device: str) -> str | None:
    """The arch of a GPU by its marketing name, as compilers write it; None when it is unknown."""
    arch = arch_of_gpu(device)
    return f"sm_{arch.replace('.', '')}" if arch and arch[0].isdigit() else arch


def _by_m(path: Path, text: str, fixed: Mapping[str, int]) -> Iterator[ImportedConfig]:
    """A table from M to a configuration; words among the keys are the writer's own."""
    try:
        data = parse_json(text, path, "a table from sizes to configurations")
    except DamagedFileError as error:
        line = getattr(error.__cause__, "lineno", 0)
        message = f"not a table from sizes to configurations: {reason_of(error)}"
        raise _problem(path, line, message) from error
    lines = text.splitlines()
    for key, config in data.items():
        if not _SIZE.fullmatch(key):
            continue
        line = next((at for at, content in enumerate(lines, 1) if f'"{key}"' in content), 0)
        if not isinstance(config, dict) or not all(
            isinstance(v, (bool, int, float, str)) for v in config.values()
        ):
            raise _problem(path, line, f"`{key}` has no configuration of numbers")
        yield ImportedConfig({**fixed, "M": int(key)}, config, line)


def _pairs(
    path: Path, text: str, columns: Sequence[str], constants: Sequence[str]
) -> Iterator[ImportedConfig]:
    """Pairs of lines: the numbers of a call, and those that are best.

    The first pair is no call's own but the default.
    """
    lines = text.splitlines()
    for at in range(0, len(lines) - 1, 2):
        call, config = (_numbers(path, at + 1 + n, lines[at + n]) for n in (0, 1))
        if at == 0 and not call and columns:
            continue
        for numbers, names, what in ((call, columns, "--key"), (config, constants, "--columns")):
            if len(numbers) != len(names):
                line = at + 1 + (names is constants)
                message = f"{len(numbers)} numbers for {len(names)} names ({', '.join(names)})"
                raise _problem(path, line, message, f"name them with {what}")
        pairs = dict(zip(columns, call, strict=True)), dict(zip(constants, config, strict=True))
        yield ImportedConfig(*pairs, at + 1)


def _numbers(path: Path, line: int, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise _problem(path, line, f"`{text}` is not a list of integers") from error


def _problem(path: Path, line: int, message: str, hint: str = "") -> ConfigError:
    hint = hint or "a .csv of pairs of lines, or a .json from M to configurations"
    return ConfigError([Problem(str(path), line, "", message, hint)])


_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class ImportResult:
    """What becomes of a file."""

    rows: tuple[TunedRow, ...]
    lacking: tuple[str, ...] = ()
    """Candidates that the op lacks, as `build.toml` would write them."""


def key_of(text: str | None, op: OpSpec) -> tuple[Expression, ...]:
    """What the op's key is made of in the file's names; the op's own expressions when not said.

    Raises:
        UsageError: it is not a list of expressions, or one of another length.
    """
    if text is None:
        return op.key
    try:
        expressions = tuple(parse(part.strip()) for part in _COMMA.split(text) if part.strip())
    except ExpressionError as error:
        raise UsageError(f"--key: `{text}`: {error.message}", hint=error.hint) from error
    if len(expressions) != len(op.key):
        own = listed(str(expression) for expression in op.key) or "empty"
        raise UsageError(f"--key has {len(expressions)} parts, the key of `{op.name}` is {own}")
    return expressions


def names_of(op: OpSpec, launch: int) -> tuple[str, ...]:
    """The constants and options that a launch's candidates set.

    Raises:
        UsageError: its candidates are not known.
    """
    own = op.launches[launch]
    names = dict([pair for c in own.candidates for pair in (*c.constants, *c.options)])
    if not names:
        known = "are known only to the kernel, or have no constants"
        hint = "name a variant that was built with --keep-all: --variant DIR"
        raise UsageError(f"the candidates of `{op.name}` {known}", hint=hint)
    return tuple(names)


def mapping_of(
    texts: Sequence[str], entries: Sequence[ImportedConfig], names: Sequence[str]
) -> dict[str, str]:
    """The file's names -> the candidates' names; those that say nothing are left out.

    Names that differ in `_`, in capitals or in the word `SIZE` mean the same.

    Raises:
        UsageError: one of them means nothing here.
    """
    mapping = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or not old:
            raise UsageError(f"--map: `{text}` is not NAME=NAME", hint="e.g. BLOCK_SIZE_M=BLOCK_M")
        mapping[old] = new
    by_stem = {_normalized(name): name for name in names}
    for name in dict.fromkeys(name for entry in entries for name in entry.config):
        if name in mapping:
            continue
        own = name if name in names else by_stem.get(_normalized(name))
        if own is None:
            hint = did_you_mean(name, names) or f"candidates set {listed(names)}"
            hint = f"{hint}; --map {name}= leaves it out"
            raise UsageError(f"no candidate sets `{name}`", hint=hint)
        mapping[name] = own
    unknown = [new for new in mapping.values() if new and new not in names]
    if unknown:
        hint = did_you_mean(unknown[0], names) or f"candidates set {listed(names)}"
        raise UsageError(f"--map: no candidate sets `{unknown[0]}`", hint=hint)
    return {old: new for old, new in mapping.items() if new}


def rows_from_import(  # noqa: PLR0917
    imported: ImportedTable,
    op: OpSpec,
    launch: int,
    key: Sequence[Expression],
    mapping: Mapping[str, str],
    dtypes: Sequence[str] = (),
) -> ImportResult:
    """Rows for every entry whose candidate there is; see `key_of` and `mapping_of`.

    With `dtypes`, those alone in which some tensor of the op has one of these.

    Raises:
        UsageError: the key does not follow from the file.
    """
    candidates = op.launches[launch].candidates
    rows, lacking = [], []
    for entry in imported.entries:
        wanted = {mapping[name]: v for name, v in entry.config.items() if name in mapping}
        matching = next((c for c in candidates if _has_constants(c, wanted)), None)
        if matching is None:
            lacking.append(candidate_toml(tuple(wanted.items()), ()))
            continue
        numbers = _key(key, entry, imported.path)
        for some in op.dtype_sets():
            if not dtypes or set(dtypes) & set(some.values()):
                place = op.kernel, op.name, launch, tuple(some.items()), numbers
                # No times: kbuild did not measure it.
                rows.append(TunedRow(*place, matching.constants, matching.options, 0.0, 0.0))
    return ImportResult(tuple(rows), tuple(dict.fromkeys(lacking)))


def _has_constants(candidate: Candidate, wanted: Mapping[str, Scalar]) -> bool:
    own = dict((*candidate.constants, *candidate.options))
    return wanted.keys() <= own.keys() and same_pairs(
        tuple((name, own[name]) for name in wanted), tuple(wanted.items())
    )


def _key(key: Sequence[Expression], entry: ImportedConfig, path: str) -> tuple[int, ...]:
    try:
        return tuple(expression.evaluate(entry.call) for expression in key)
    except (KeyError, EvaluationError) as error:
        message = f"`{path}` does not say {error}, which the key needs"
        hint = f"it says {listed(entry.call)}; write the key in these: --key"
        raise UsageError(message, hint=hint) from error


def _normalized(name: str) -> str:
    return name.lower().replace("size", "").replace("_", "")


_FILE = "build.toml"


def ops_of(root: Path) -> tuple[OpSpec, ...]:
    """Every op of the kernels in Python DSLs.

    Raises:
        ConfigError: with everything that is wrong with these sections.
        UsageError: there are none.
    """
    try:
        text = (root / _FILE).read_text("utf-8")
        kernels = parse_toml(text).get("kernel", {})
    except OSError as error:
        raise UsageError(f"`{root / _FILE}`: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem(_FILE, 0, "", f"is not TOML: {reason_of(error)}")]) from error
    sections = {
        name: section
        for name, section in kernels.items()
        if isinstance(section, dict) and DIALECTS.find(str(section.get("language")))
    }
    tree = SourceTree(root)
    captured = (
        pair for name, own in sections.items() for pair in captured_sections(tree, name, own)
    )
    readings = [read_section(name, section) for name, section in (*sections.items(), *captured)]
    lines = LineIndex(text)
    problems = [
        problem_at(issue, lines, _FILE)
        for reading in readings
        for issue in reading.issues
        if issue.severity == "error"
    ]
    if problems:
        raise ConfigError(problems)
    ops = tuple(op for reading in readings for op in reading.ops)
    if not ops:
        page = manual_page("reference/dsl-kernels.md")
        hint = f"`language` in a `[kernel.*]` section, see {page}"
        raise UsageError(f"`{root / _FILE}` has no kernel in a Python DSL", hint=hint)
    return ops
