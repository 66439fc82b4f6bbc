"""The end of a run: what has to be said, the report, and the cache within its bounds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kbuild.build import objectcache
from kbuild.build.budget import Run
from kbuild.build.report import VariantOutcome, render
from kbuild.build.units import LOG, UnitLog, read_log
from kbuild.ui import Ui

PAGE = "build.html"


def conclude(
    name: str, folder: Path, outcomes: Sequence[VariantOutcome], run: Run, ui: Ui
) -> Mapping[str, tuple[int, int]]:
    """Per variant: objects made, and how many of them came from the cache.

    The page and the log of units of the kernel `name` go to `folder`.
    """
    log = read_log(run.log)
    for warning in (*log.warnings, *(unit.killed for unit in log.units if unit.killed)):
        ui.warn(warning)
    if log.units or any(outcome.images for outcome in outcomes):
        _keep(name, folder, outcomes, run=run, log=log, ui=ui)
    if run.keeps and any(unit.cache == "miss" for unit in log.units):
        with suppress(OSError):  # another process prunes as well
            objectcache.prune(run.cache, run.limit)
    return {outcome.variant: _counted(log, outcome.variant) for outcome in outcomes}


def _keep(
    name: str,
    folder: Path,
    outcomes: Sequence[VariantOutcome],
    *,
    run: Run,
    log: UnitLog,
    ui: Ui,
) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run.log, folder / LOG)
        (folder / PAGE).write_text(render(name, outcomes, log, run.budget), encoding="utf-8")
    except OSError as error:
        ui.warn(f"the report of the build could not be kept: {error}")


def _counted(log: UnitLog, variant: str) -> tuple[int, int]:
    made = [unit for unit in log.objects if unit.variant == variant and unit.status == 0]
    return len(made), sum(1 for unit in made if unit.cache == "hit")
