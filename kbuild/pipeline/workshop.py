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
def workshop_for(plans: Sequence[VariantPlan], run: Run, doors: Doors) -> Iterator[Workshop | None]:
    """Opened when a plan needs one, closed at the end; no worker starts before it has work."""
    if not any(made.aot for made in plans):
        yield None
        return
    from kbuild.languages.environment import Environments
    from kbuild.languages.workshop import Workshop
    from kbuild.store import store_of
    from kbuild.toolchains.wheels.installer import Installer

    installer = Installer(doors.runner, store_of(doors.cache), say=doors.ui.say)
    with closing(Workshop(run, Environments(installer))) as workshop:
        yield workshop
