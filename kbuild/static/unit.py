"""One unit's types, checked once: the answer is kept in the object cache in place of an object.

An entry fits while compiler, arguments, source and every header are what they were, as it does for
objects. The "object" is the compiler's exit status. That a unit has errors is remembered as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kbuild.build.unit.cache import Unit
from kbuild.build.unit.command import Command
from kbuild.build.unit.inputs import Inputs
from kbuild.build.unit.settings import Settings
from kbuild.run import Runner
from kbuild.static.command import LANGUAGE

_ERROR = "error: "
_KILLED = "Killed signal terminated program"  # gcc's words when the system stops its compiler


@dataclass(frozen=True)
class Answer:
    """What the compiler said of a unit."""

    is_clean: bool
    said: str
    is_remembered: bool
    """True when no compiler was started."""


@dataclass(frozen=True)
class Surroundings:
    """What all units of a project share."""

    root: Path
    """The project, which has a name in `-ffile-prefix-map`."""
    scratch: Path
    """Folder for what a compiler writes."""
    generated: Path
    """Folder of headers that were just written."""
    settings: Settings
    """Say where the cache is, if any."""
    environ: Mapping[str, str]
    """The compiler's whole environment."""
    runner: Runner
    """Starts the compiler."""


def ask(argv: Sequence[str], source: str, around: Surroundings) -> Answer:
    """Check one unit.

    Args:
        argv: compiler and arguments, without source and outputs.
        source: the unit, relative to the project.
        around: where and how.
    """
    with tempfile.TemporaryDirectory(dir=around.scratch) as folder:
        verdict, depfile = Path(folder, "verdict"), Path(folder, "depfile")
        outputs = ("-MD", "-MF", str(depfile), "-o", str(verdict))
        return _ask([*argv, *outputs, "-c", str(around.root / source)], verdict, around)


def _ask(words: list[str], verdict: Path, around: Surroundings) -> Answer:
    command = Command(words, LANGUAGE, str(around.root))
    inputs = Inputs(around.settings, command, around.environ)
    inputs.expect(str(path) for path in around.generated.rglob("*") if path.is_file())
    unit = _unit(command, inputs, around)
    known = unit.fetch() if unit else None
    if known is not None:
        clean = verdict.read_text() == "0"
        return Answer(clean, known.decode(errors="replace"), is_remembered=True)
    done = around.runner.run(words, cwd=around.root, env=around.environ)
    verdict.write_text(str(done.returncode))
    told = done.ok or (_ERROR in done.output and _KILLED not in done.output)
    read = inputs.read()
    # Without a depfile, a header was not found.
    if unit is not None and told and read and not inputs.changed(read):
        with suppress(OSError):
            unit.store(done.output.encode(), read)
    return Answer(done.ok, done.output, is_remembered=False)


def _unit(command: Command, inputs: Inputs, around: Surroundings) -> Unit | None:
    """The unit's part of the cache; None when nothing is kept."""
    if not around.settings.cache:
        return None
    unit = Unit(around.settings, command, around.environ, inputs)
    return None if unit.refusal else unit
