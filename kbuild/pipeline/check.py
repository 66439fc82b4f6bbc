"""Sources that no compiler of this machine compiles: what can be proved of them without one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbuild.backends import BACKENDS
from kbuild.identity import Identity
from kbuild.matrix.selection import Choice, select, variants
from kbuild.pipeline.options import Doors
from kbuild.plan import VariantPlan
from kbuild.planning import make_plans
from kbuild.project import Project
from kbuild.sourcetree import SourceTree
from kbuild.static.includes import check_includes
from kbuild.static.verdict import Verdict

if TYPE_CHECKING:  # toolchains, which only a check of types needs
    from kbuild.pipeline.typecheck import CheckOptions, Desk

# The op namespace proves nothing: with one name for all states of the source, only what changed is
# checked again.
_ANY = Identity(unique_id="check", commit=None, dirty=False)


def check(project: Project, options: CheckOptions, doors: Doors) -> tuple[Verdict, ...]:
    """The verdict on each variant that was asked for and can be judged without its compiler.

    Without named variants, that is one of the newest Torch for each such backend.

    Raises:
        ToolchainError: there is no C++ compiler.
    """
    from kbuild.pipeline.typecheck import Desk, check_types

    tree = SourceTree(project.root)
    chosen = [choice for choice in select(project, options.selection) if _can_judge(choice)]
    if not options.selection.is_explicit:
        chosen = _newest(chosen)
    plans = make_plans(project, chosen, tree, doors.runner, identity=_ANY)
    desk = Desk(project, options, doors)
    typed = [made for made in plans if BACKENDS.get(made.backend).type_check]
    verdicts = check_types(desk, typed) if typed else {}
    verdicts |= {made.variant: _includes(desk, made, tree) for made in plans if made not in typed}
    return tuple(verdicts[made.variant] for made in plans)


def compiled_only(project: Project) -> tuple[str, ...]:
    """The project's compiled backends about which only a build can say anything."""
    judged = {choice.variant.backend for choice in variants(project) if _can_judge(choice)}
    return tuple(
        name
        for name in project.file.general.backends
        if name not in judged and project.is_compiled(name)
    )


def _can_judge(choice: Choice) -> bool:
    backend = BACKENDS.get(choice.variant.backend)
    is_compiled = choice.variant.system is not None
    return is_compiled and bool(backend.type_check or backend.include_check)


def _newest(choices: Iterable[Choice]) -> list[Choice]:
    """One variant of each backend: the last of its newest Torch, in matrix order."""
    best: dict[str, Choice] = {}
    for choice in choices:
        before = best.get(choice.variant.backend)
        if before is None or _torch(choice) >= _torch(before):
            best[choice.variant.backend] = choice
    return list(best.values())


def _torch(choice: Choice) -> tuple[int, ...]:
    return choice.torch.parts if choice.torch else ()


def _includes(desk: Desk, made: VariantPlan, tree: SourceTree) -> Verdict:
    asked = BACKENDS.get(made.backend).include_check
    assert asked is not None  # noqa: S101 - see `_can_judge`
    files, findings = check_includes(made, tree, asked)
    proved = f"includes of {len(files)} file{'s' if len(files) != 1 else ''} resolved"
    return Verdict(made.variant, proved, desk.unproved(made), findings)
