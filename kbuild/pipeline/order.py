"""Which variants start first, so that no processor waits for the last long unit."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.plan import VariantPlan


def longest_first(plans: Sequence[VariantPlan]) -> tuple[VariantPlan, ...]:
    """The plans in the order in which they are started.

    First one of each toolkit, those with the most architectures in front: these compile device code
    that nobody has compiled yet, and it takes longest. The others, whose device code is the same,
    keep their order: by the time they start, the cache has it.
    """
    firsts: dict[tuple[str, str | None], VariantPlan] = {}
    for made in plans:
        firsts.setdefault((made.requires.backend, made.requires.toolkit), made)
    front = sorted(firsts.values(), key=lambda made: -len(made.archs))
    leading = {made.variant for made in front}
    return (*front, *(made for made in plans if made.variant not in leading))
