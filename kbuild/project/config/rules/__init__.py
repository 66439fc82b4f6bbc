"""Requirements on a `build.toml` beyond the shape of its tables.

A rule is a function from the document to issues. Rules never stop at the first issue, never raise,
and look at files only through the context's source tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kbuild.project.config.document import Document
from kbuild.project.config.issue import Issue
from kbuild.project.config.rules import files, kernels, project
from kbuild.project.config.rules.context import RuleContext

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


def check(
    document: Document, context: RuleContext, more_rules: Iterable[Rule] = ()
) -> Iterator[Issue]:
    """Every issue that any rule finds."""
    for rule in (*RULES, *more_rules):
        yield from rule(document, context)
