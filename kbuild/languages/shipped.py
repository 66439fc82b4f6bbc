"""Which of a launch's candidates are compiled: those that tables name, and the default ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbuild.languages.expression import Expression
from kbuild.languages.spec.values import Candidate, Launch
from kbuild.languages.tables import Table
from kbuild.languages.target import Target


def shipped(  # noqa: PLR0917
    launch: Launch,
    tables: Sequence[Table],
    kernel: str,
    op: str,
    index: int,
    target: Target,
    *,
    among: Sequence[Target] = (),
    keep_all: bool = False,
) -> tuple[Candidate, ...]:
    """The candidates that get an image for `target`, in the section's order.

    Those are the winners of tables whose devices run images of `target`, and the default ones: up
    to and including the first that every call may use, and of several for the same calls the first.

    Args:
        launch: with its real candidates, also where they are the kernel's own.
        tables: every tuned table of the project.
        kernel: the section.
        op: the op's name.
        index: the launch's place in the op.
        target: what is compiled for.
        among: everything that the variant is compiled for; devices run the closest. `target` alone
            when empty.
        keep_all: for tuning: all that are made for the arch.
    """
    fitting = [one for one in launch.candidates if not one.archs or target.is_one_of(one.archs)]
    if keep_all:
        return tuple(fitting)
    targets = among or (target,)
    near = [table for table in tables if closest(table.arch, targets) == target]
    rows = [row for table in near for row in table.of(kernel, op, index)]
    wanted = [*_defaults(fitting)]
    wanted += [one for one in fitting if any(row.names(one) for row in rows)]
    return tuple(one for one in fitting if any(one is other for other in wanted))


def closest(arch: str, targets: Sequence[Target]) -> Target | None:
    """What a device of that arch runs; None when nothing fits.

    Code for exactly its arch, else for an older one of its family, else PTX; of several the newest.

    Args:
        arch: a device's arch, `sm_89` or `gfx942`.
        targets: what there are images for.
    """
    able = [target for target in targets if runs(target, arch)]
    return max(able, key=_closeness, default=None)


def _defaults(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    seen: list[Expression | None] = []
    for candidate in candidates:
        if candidate.when not in seen:
            yield candidate
        if candidate.when is None:
            return
        seen.append(candidate.when)


def runs(target: Target, arch: str) -> bool:
    """True when a device of that arch runs code for `target`."""
    own = target.capability
    if own is None or not arch.startswith("sm_"):
        return target.arch == arch
    device = Target(arch, "cubin").capability
    if device is None:
        return False
    if own.feature == "a":
        return own.base == device.base
    if target.kind == "ptx" and not own.feature:
        return own.base <= device.base
    return own.major == device.major and own.minor <= device.minor


def _closeness(target: Target) -> tuple[bool, tuple[int, int], str]:
    own = target.capability
    # `a` is closer than `f`, and both are closer than code without either.
    feature = {"": "0", "f": "1", "a": "2"}[own.feature if own else ""]
    return target.kind != "ptx", own.base if own else (0, 0), feature
