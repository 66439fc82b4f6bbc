"""Requirements on a `build.toml` beyond the shape of its tables.

A rule is a function from the document to issues. Rules never stop at the first issue, never raise,
and look at files only through the context's source tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kbuild.project.config.document import Document, RuleContext
from kbuild.project.config.issue import Issue
from kbuild.project.config.rules import files, kernels, project

Rule = Callable[[Document, RuleContext], Iterable[Issue]]

RULES: tuple[Rule, ...] = (
    *project.GENERAL_RULES,
    *project.FRAMEWORK_RULES,
    *kernels.KERNEL_RULES,
    *kernels.ARCH_RULES,
    *kernels.DEPENDENCY_RULES,
    *files.PATH_RULES,
    *files.SOURCE_RULES,
    *files.PACKAGE_RULES,
)


def check(document: Document, context: RuleContext) -> Iterator[Issue]:
    """Every issue that any rule finds."""
    for rule in (*RULES, *context.catalog.rules):
        yield from rule(document, context)
