"""One workshop for all kernels in Python DSLs of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from kbuild.pipeline.options import Doors
from kbuild.plan import VariantPlan

if TYPE_CHECKING:  # what only projects with such kernels need
    from kbuild.build.budget import Run
    from kbuild.languages.workshop import Workshop


@contextmanager
def workshop_for(
    plans: Sequence[VariantPlan], run: Run, doors: Doors
) -> Iterator[Workshop | None]:
    """Opened when a plan needs one, closed at the end; no worker starts before it has work."""
    if not any(made.aot for made in plans):
        yield None
        return
    from kbuild.languages.workshop import Workshop

    with closing(Workshop(run, doors.runner, doors.cache, doors.ui.say)) as workshop:
        yield workshop
