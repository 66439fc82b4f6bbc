"""Reads `build.toml`: text, TOML, migration from older editions, validation.

The result is a model or every problem with its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from kbuild import manual_page
from kbuild.project.config.display import display_path
from kbuild.project.config.document import Document, with_source_files
from kbuild.project.config.file_model import build_file_type
from kbuild.project.config.issue import Issue, KeyPath, dotted, toml_type
from kbuild.project.config.model import EDITION, BackendCatalog, BuildFile
from kbuild.project.config.rules import files, kernels, project
from kbuild.project.config.rules.context import RuleContext
from kbuild.project.config.section_readers import PluginReadings, read_plugin_sections
from kbuild.system.errors import ConfigError, Problem
from kbuild.system.sourcetree import SourceTree
from kbuild.system.untrusted import parse_toml

Rule = Callable[[Document, RuleContext], Iterable[Issue]]
RULES: tuple[Rule, ...] = (
    *(*project.GENERAL_RULES, *project.FRAMEWORK_RULES),
    *(*kernels.KERNEL_RULES, *kernels.ARCH_RULES, *kernels.DEPENDENCY_RULES),
    *(*files.PATH_RULES, *files.SOURCE_RULES, *files.PACKAGE_RULES),
)
_LIMIT = 4 << 20
"""Bytes of the longest `build.toml`."""
_POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_COLUMN = re.compile(r" \(column (\d+)\)$")
_STATEMENT_HINT = "a line is `key = value`, `[table]` or a comment"
# The start of tomli's sentence -> what to do about it.
_SYNTAX_HINTS = {
    "Invalid statement": _STATEMENT_HINT,
    "Invalid value": 'strings are written in quotes, lists as `["a", "b"]`',
    "Cannot overwrite": "the same key is written twice; keep one of them",
    "Cannot declare": "the same table is written twice; join the two",
    "Unclosed array": "a `[` has no `]`",
    "Expected '='": _STATEMENT_HINT,
    "Unescaped '\\\\'": "write `\\\\` for a backslash, or use 'single quotes'",
}


class UnreadableError(ConfigError):
    """The file cannot be read as TOML, so nothing more can be said about it."""


def read_build_file(tree: SourceTree, file: str) -> str:
    """The text of `file`.

    Raises:
        UnreadableError: it is missing, not a file, not UTF-8 or empty.
    """
    try:
        text = _decode(tree, file)
    except OSError as error:
        raise _unreadable(tree, file, f"cannot be read: {error.strerror}") from error
    if not text.strip():
        raise _unreadable(
            tree, file, "is empty", hint="`kbuild init` writes a project to start from"
        )
    return text


def _decode(tree: SourceTree, file: str) -> str:
    if tree.is_dir(file):
        raise _unreadable(tree, file, "is a folder, not a file")
    fault = tree.fault(file)
    if fault is not None:
        raise _unreadable(tree, file, fault.message, hint=fault.hint)
    if not tree.is_file(file):
        hint = "pass the folder of a kernel project, or start one with `kbuild init`"
        raise _unreadable(tree, file, "does not exist", hint=hint)
    data = tree.read_bytes(file, _LIMIT)
    if data.startswith(b"\xef\xbb\xbf"):
        raise _unreadable(tree, file, "starts with a byte-order mark", 1, "save it as plain UTF-8")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise _unreadable(tree, file, message, line, "save the file as UTF-8") from error


def parse_build_file(tree: SourceTree, file: str, text: str) -> dict[str, Any]:
    """The text as a dictionary.

    Raises:
        UnreadableError: it is not TOML; the line comes from tomli.
    """
    try:
        return parse_toml(text)
    except RecursionError as error:
        raise _unreadable(tree, file, "is nested too deeply") from error
    except ValueError as error:  # TOMLDecodeError, and numbers too long for Python
        issue = syntax_issue(text, error)
        raise _syntax_error(tree, file, text, issue) from error


def _syntax_error(tree: SourceTree, file: str, text: str, issue: Issue) -> UnreadableError:
    from kbuild.project.config.locate import SourceSpan, problem_in, source_line

    column = _COLUMN.search(issue.message)
    place = int(column[1]) if column else 0
    span = SourceSpan(issue.line, place, 1 if column else 0, source_line(text, issue.line))
    return UnreadableError([problem_in(issue, span, display_path(tree.root, file))])


def syntax_issue(text: str, error: ValueError) -> Issue:
    """The message of tomli about the text, with the line apart."""
    reason = str(error)
    position = _POSITION.search(reason)
    if position is None:
        return Issue((), f"not valid TOML: {reason}")
    message = reason[: position.start()]
    line, column = position.groups()
    hint = next((hint for start, hint in _SYNTAX_HINTS.items() if message.startswith(start)), "")
    if line is None:
        last = text.rstrip().count("\n") + 1
        return Issue((), f"not valid TOML: {message} before the end of the file", hint, line=last)
    return Issue((), f"not valid TOML: {message} (column {column})", hint, line=int(line))


def _unreadable(
    tree: SourceTree, file: str, message: str, line: int = 0, hint: str = ""
) -> UnreadableError:
    return UnreadableError([Problem(display_path(tree.root, file), line, "", message, hint)])


FIRST_EDITION: Mapping[KeyPath, int] = {
    ("general", "edition"): 5,
    ("general", "source"): 4,
    ("general", "kernel-depends"): 5,
    ("general", "kernels-minver"): 5,
    ("general", "tpu"): 5,
    ("torch", "stable-abi"): 4,
    ("torch", "cxx-flags"): 4,
    ("torch-noarch",): 4,
}
"""The first edition that knows a table or key; all others are in every edition."""

_OLDEST = 3
_EDITION_3_TABLES = {"general", "kernel", "torch", "tvm-ffi"}
_EDITION_PATH: KeyPath = ("general", "edition")
_UPDATE_HINT = (
    "`kbuild check-config --update` rewrites the file to edition 5 and keeps its comments"
)


@dataclass(frozen=True)
class MigratedFile:
    """A file's content in edition 5 terms."""

    edition: int
    """Edition that the file is written in."""
    data: Mapping[str, Any]
    issues: tuple[Issue, ...] = ()
    readable: bool = True
    """False when the edition is newer than this kbuild, whose rules may not hold for it."""


def migrate(data: Mapping[str, Any]) -> MigratedFile:
    """Convert upward, one edition after the other."""
    general = data.get("general")
    if not isinstance(general, dict):
        return MigratedFile(EDITION, data)
    if "edition" in general:
        return _numbered(data, general["edition"])
    if _is_edition_3(data, general):
        return _from_3(data)
    return _from_4(data)


def _numbered(data: Mapping[str, Any], edition: Any) -> MigratedFile:
    # `isinstance` would take `true` for an integer.
    if type(edition) is not int:
        issue = Issue(_EDITION_PATH, f"must be the integer {EDITION}, not {toml_type(edition)}")
        return MigratedFile(EDITION, data, (replace(issue, hint=f"write `edition = {EDITION}`"),))
    if edition == EDITION:
        return MigratedFile(EDITION, data)
    if edition > EDITION:
        message = f"edition {edition} is newer than this kbuild, which reads up to {EDITION}"
        issue = Issue(_EDITION_PATH, message, "upgrade kbuild")
        return MigratedFile(edition, data, (issue,), readable=False)
    return MigratedFile(EDITION, data, (_too_old(edition),))


def _too_old(edition: int) -> Issue:
    if edition in {3, 4}:
        hint = "remove the line, then run `kbuild check-config --update`"
        return Issue(_EDITION_PATH, f"edition {edition} files do not have an `edition` key", hint)
    if edition in {1, 2}:
        hint = (
            f"rewrite the file for edition {EDITION}: "
            f"{manual_page('reference/build-toml.md')} lists every key"
        )
        return Issue(_EDITION_PATH, f"edition {edition} is no longer read by any tool", hint)
    return Issue(_EDITION_PATH, f"there is no edition {edition}", f"write `edition = {EDITION}`")


def _is_edition_3(data: Mapping[str, Any], general: Mapping[str, Any]) -> bool:
    if any(_has_key(data, path) for path, since in FIRST_EDITION.items() if since > _OLDEST):
        return False
    unversioned = "version" not in general
    python_only = not any(key in data for key in BuildFile.frameworks) and not data.get("kernel")
    return set(data) <= _EDITION_3_TABLES and (unversioned or python_only)


def _has_key(data: Any, path: KeyPath) -> bool:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _from_3(data: Mapping[str, Any]) -> MigratedFile:
    general = {"version": 1} | data["general"]
    framed = any(key in data for key in BuildFile.frameworks)
    # Compiled kernels need a framework that only the author knows.
    framework: dict[str, Any] = {} if framed or data.get("kernel") else {"torch-noarch": {}}
    above = _from_4({**data, "general": general, **framework})
    issues = [_advice(3), *(issue for issue in above.issues if issue.severity == "error")]
    if "license" not in general:
        message = "is missing; edition 3 did not need it, but edition 5 does"
        issues.append(
            Issue(("general", "license"), message, 'write the SPDX name, e.g. `license = "MIT"`')
        )
    return MigratedFile(3, above.data, tuple(issues))


def _from_4(data: Mapping[str, Any]) -> MigratedFile:
    general = {**data["general"], "edition": EDITION}
    return MigratedFile(4, {**data, "general": general}, (_advice(4), *_too_new(data)))


def _advice(edition: int) -> Issue:
    return Issue(("general",), f"this is an edition {edition} file", _UPDATE_HINT, "warning")


def _too_new(data: Mapping[str, Any]) -> Iterator[Issue]:
    hint = f"add `edition = {EDITION}` to `[general]`"
    for path, since in FIRST_EDITION.items():
        if since == EDITION and _has_key(data, path):
            yield Issue(path, f"is known since edition {EDITION}, and this file has none", hint)
    torch = data.get("torch")
    if isinstance(torch, dict) and isinstance(torch.get("stable-abi"), dict):
        message = f"may be a table since edition {EDITION}, and this file has none"
        yield Issue(("torch", "stable-abi"), message, hint)


CatalogFor = Callable[[frozenset[str]], BackendCatalog]
"""The catalog for a file that names these backends."""


@dataclass(frozen=True)
class LoadedFile:
    """A valid file."""

    file: BuildFile
    edition: int
    """Edition that the file is written in."""
    warnings: tuple[Problem, ...]
    plugins: PluginReadings
    """Readings of the plug-ins' keys."""


def load(
    tree: SourceTree,
    catalog_for: CatalogFor,
    file: str = "build.toml",
    more_rules: Iterable[Rule] = (),
) -> LoadedFile:
    """Read and validate a project.

    Args:
        tree: the project's files.
        catalog_for: the catalog for a file that names these backends.
        file: its name in the tree.
        more_rules: rules beside those of this package; `load` calls each once.

    Raises:
        ConfigError: with every error and warning, in the file's order.
    """
    text = read_build_file(tree, file)
    migrated = migrate(parse_build_file(tree, file, text))
    if not migrated.readable:
        raise ConfigError(_locate(migrated.issues, text, tree, file))
    data, plugins = read_plugin_sections(with_source_files(migrated.data, tree), tree)
    document = Document(data)
    named = (document.backends_of(kernel) for kernel, _ in document.kernels())
    catalog = catalog_for(
        frozenset({*document.backends(), *(name for group in named for _, name in group)})
    )
    model, violations = _validate(document, catalog)
    context = RuleContext(catalog, tree, migrated.edition, plugins)
    read = (issue for reading in plugins.by_key.values() for issue in reading.issues)
    ruled = [issue for rule in (*RULES, *more_rules) for issue in rule(document, context)]
    problems = _locate(_merged(migrated.issues, (*read, *ruled), violations), text, tree, file)
    if model is None or any(problem.severity == "error" for problem in problems):
        raise ConfigError(problems)
    return LoadedFile(model, migrated.edition, problems, plugins)


def locate_issues(issues: Iterable[Issue], tree: SourceTree) -> tuple[Problem, ...]:
    """Issues found after `build.toml` was loaded, with their lines."""
    return _locate(issues, read_build_file(tree, "build.toml"), tree, "build.toml")


def config_error(tree: SourceTree, path: KeyPath, message: str, hint: str = "") -> ConfigError:
    """The error at a key path, found after `build.toml` was loaded."""
    return ConfigError(locate_issues([Issue(path, message, hint)], tree))


def _validate(
    document: Document, catalog: BackendCatalog
) -> tuple[BuildFile | None, tuple[Issue, ...]]:
    try:
        return build_file_type(catalog).model_validate(document.data), ()
    except ValidationError as error:
        from kbuild.project.config.model_errors import issues_of

        return None, tuple(issues_of(error, document, catalog))


def _merged(*sources: Iterable[Issue]) -> list[Issue]:
    """All issues, without those at a key path where an earlier source has an error."""
    merged: list[Issue] = []
    for issues in sources:
        wrong = {issue.path for issue in merged if issue.severity == "error"}
        merged.extend(issue for issue in issues if not issue.path or issue.path not in wrong)
    return merged


def _locate(issues: Iterable[Issue], text: str, tree: SourceTree, file: str) -> tuple[Problem, ...]:
    """Problems in the order of the lines; `build.toml` comes before other files."""
    issues = list(issues)
    if not issues:
        return ()
    # A file without problems is not scanned.
    from kbuild.project.config.locate import LineIndex, problem_at

    lines, place = LineIndex(text), display_path(tree.root, file)
    # Two rules may say the same of one place, which is printed once.
    problems: Mapping[tuple[Any, ...], Problem] = {
        (issue.file, problem.line, problem.column, dotted(issue.path), issue.message): problem
        for issue in issues
        for problem in [
            _problem_in_source(issue, tree) if issue.file else problem_at(issue, lines, place)
        ]
    }
    return tuple(problems[key] for key in sorted(problems))


def _problem_in_source(issue: Issue, tree: SourceTree) -> Problem:
    """The problem for an issue of another file than `build.toml`."""
    from kbuild.project.config.locate import SourceSpan, problem_in, source_line

    source = ""
    if issue.line and tree.is_file(issue.file):
        source = source_line(tree.read_bytes(issue.file).decode("utf-8", "replace"), issue.line)
    span = SourceSpan(issue.line, source=source)
    return problem_in(issue, span, display_path(tree.root, issue.file), key=False)
