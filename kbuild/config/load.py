"""From a project's files to a validated `BuildFile`, or to everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kbuild.config.assemble import build_file_type
from kbuild.config.document import Context, Document
from kbuild.config.editions import migrate
from kbuild.config.issue import Issue, dotted
from kbuild.config.model import BuildFile, Catalog
from kbuild.config.place import display
from kbuild.config.rules import check
from kbuild.config.suggest import printable
from kbuild.config.text import parse, read
from kbuild.errors import ConfigError, Problem
from kbuild.sourcetree import SourceTree

CatalogFor = Callable[[frozenset[str]], Catalog]
"""The catalog for a file that names these backends."""


@dataclass(frozen=True)
class Loaded:
    """A valid file."""

    file: BuildFile
    edition: int
    """Edition that the file is written in."""
    warnings: tuple[Problem, ...]


def load(tree: SourceTree, catalog_for: CatalogFor, file: str = "build.toml") -> Loaded:
    """Read and judge a project.

    Raises:
        ConfigError: with every error and warning, in the file's order.
    """
    text = read(tree, file)
    migrated = migrate(parse(tree, file, text))
    if not migrated.readable:
        raise ConfigError(_located(migrated.issues, text, tree, file))
    document = Document(migrated.data)
    catalog = catalog_for(_backends_named(document))
    model, violations = _validate(document, catalog)
    ruled = tuple(check(document, Context(catalog, tree, migrated.edition)))
    problems = _located(_merged(migrated.issues, ruled, violations), text, tree, file)
    if model is None or any(problem.severity == "error" for problem in problems):
        raise ConfigError(problems)
    return Loaded(model, migrated.edition, problems)


def located(
    issues: Iterable[Issue], tree: SourceTree, file: str = "build.toml"
) -> tuple[Problem, ...]:
    """Issues found after the file was loaded, with their lines."""
    return _located(issues, read(tree, file), tree, file)


def _backends_named(document: Document) -> frozenset[str]:
    named = (document.backends_of(kernel) for kernel, _ in document.kernels())
    return frozenset({*document.backends(), *(name for group in named for _, name in group)})


def _validate(document: Document, catalog: Catalog) -> tuple[BuildFile | None, tuple[Issue, ...]]:
    try:
        return build_file_type(catalog).model_validate(document.data), ()
    except ValidationError as error:
        from kbuild.config.violations import issues_of

        return None, tuple(issues_of(error, document, catalog))


def _merged(*sources: Iterable[Issue]) -> list[Issue]:
    """All issues; a later source is silent about a key path that an earlier one found wrong."""
    merged: list[Issue] = []
    for issues in sources:
        judged = {issue.path for issue in merged if issue.severity == "error"}
        merged.extend(issue for issue in issues if not issue.path or issue.path not in judged)
    return merged


def _located(
    issues: Iterable[Issue], text: str, tree: SourceTree, file: str
) -> tuple[Problem, ...]:
    """Problems in the order of the lines; `build.toml` comes before other files."""
    issues = list(issues)
    if not issues:
        return ()
    from kbuild.config.locate import Lines  # a file without problems is not scanned

    lines = Lines(text)
    problems: Mapping[tuple[Any, ...], Problem] = {
        (issue.file, line, dotted(issue.path), issue.message): _problem(issue, line, tree, file)
        for issue in issues
        for line in [issue.line if issue.file else lines.of(issue.path)]
    }
    return tuple(problems[key] for key in sorted(problems))


def _problem(issue: Issue, line: int, tree: SourceTree, file: str) -> Problem:
    place = display(tree.root, issue.file or file)
    key = "" if issue.file else dotted(issue.path)
    return Problem(
        place, line, key, printable(issue.message), printable(issue.hint), issue.severity
    )
