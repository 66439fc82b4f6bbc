"""What can be judged on a variant's C++ sources before they are compiled."""

from __future__ import annotations

import posixpath

from kbuild.checks import Finding
from kbuild.frameworks import FRAMEWORKS
from kbuild.identity import Identity
from kbuild.includes import reachable
from kbuild.matrix.selection import variants
from kbuild.plan import VariantPlan
from kbuild.planning import make_plans
from kbuild.project import Project
from kbuild.run import Runner
from kbuild.sourcetree import SourceTree

_ANY = Identity(unique_id="check", commit=None, dirty=False)
"""Sources are judged before their own name is known."""


def cxx_findings(project: Project, runner: Runner) -> tuple[Finding, ...]:
    """`binding_findings` of one variant for each framework and backend, each once."""
    compiled = (choice for choice in variants(project) if choice.variant.system is not None)
    chosen = {(made.variant.framework, made.variant.backend): made for made in compiled}
    tree = SourceTree(project.root)
    plans = make_plans(project, tuple(chosen.values()), tree, runner, identity=_ANY)
    return tuple(dict.fromkeys(found for made in plans for found in binding_findings(made, tree)))


def binding_findings(made: VariantPlan, tree: SourceTree) -> tuple[Finding, ...]:
    """Findings on the namespaces that ops are registered under; `where` is relative to the project.

    Args:
        made: the variant, of which every listed source is read, and what it includes.
        tree: the project's files.
    """
    from kbuild.checks.ops_cxx import check_ops_cxx

    framework = FRAMEWORKS.get(made.framework)
    paths = dict.fromkeys(
        path
        for component in made.components
        for source in component.sources
        for path in reachable(tree, source.path, component.include)
        if posixpath.basename(path) not in framework.support_files
    )
    files = {path: tree.read_text(path) for path in paths}
    return tuple(check_ops_cxx(files, framework.name_macro)) if files else ()
