"""What a `build.toml` must say beyond the shape of its tables.

A rule is a function from the document to issues. Rules never stop at the first issue, never raise,
and look at files only through the context's source tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kbuild.config.document import Document, RuleContext
from kbuild.config.issue import Issue
from kbuild.config.rules import (
    archs,
    depends,
    frameworks,
    general,
    kernels,
    languages,
    package,
    paths,
    sources,
    tables,
)

Rule = Callable[[Document, RuleContext], Iterable[Issue]]

RULES: tuple[Rule, ...] = (
    *general.RULES,
    *frameworks.RULES,
    *kernels.RULES,
    *languages.RULES,
    *archs.RULES,
    *depends.RULES,
    *paths.RULES,
    *sources.RULES,
    *package.RULES,
    *tables.RULES,
)


def check(document: Document, context: RuleContext) -> Iterator[Issue]:
    """Every issue that any rule finds."""
    for rule in RULES:
        yield from rule(document, context)
