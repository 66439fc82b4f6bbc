"""Knowing that a variant is up to date: what the last good build read, and what it left."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.fileset import replace_atomically
from kbuild.plan import VariantPlan
from kbuild.sourcetree import Look, look, unchanged

_FORMAT = 1


@dataclass(frozen=True)
class BuildState:
    """The record of one good build."""

    plan: str
    """Digest of the plan, toolchain included."""
    generator: str
    """Which kbuild generated the files."""
    output: str
    """The variant directory."""
    inputs: Mapping[str, Look]
    """Project files that were read, by path relative to the project."""
    outputs: Mapping[str, Look]
    """Files of the variant directory, by path relative to it."""

    def holds(self, plan: VariantPlan, root: Path, output: Path) -> bool:
        """True when building `plan` into `output` again would change nothing."""
        return (
            self.plan == plan.digest
            and self.generator == generator()
            and self.output == str(output)
            and unchanged(root, self.inputs)
            and unchanged(output, self.outputs)
        )

    def write(self, target: Path) -> None:
        """Save the record."""
        data = {"format": _FORMAT, **vars(self)}
        replace_atomically(target, json.dumps(data, indent=1).encode())


def record(plan: VariantPlan, root: Path, output: Path, inputs: Iterable[str]) -> BuildState:
    """The record of a build that just ended well."""
    files = (path for path in output.rglob("*") if path.is_file())
    return BuildState(
        plan=plan.digest,
        generator=generator(),
        output=str(output),
        inputs={path: look(root / path) for path in sorted(set(inputs))},
        outputs={path.relative_to(output).as_posix(): look(path) for path in sorted(files)},
    )


def read_state(target: Path) -> BuildState | None:
    """The last good build's record; None when there is none that this kbuild can read."""
    try:
        data = json.loads(target.read_text())
        if data.pop("format") != _FORMAT:
            return None
        data["inputs"], data["outputs"] = _looks(data["inputs"]), _looks(data["outputs"])
        return BuildState(**data)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _looks(data: Mapping[str, Any]) -> dict[str, Look]:
    return {
        path: None if then is None else (int(then[0]), int(then[1])) for path, then in data.items()
    }


def generator() -> str:
    """The version of kbuild, and the newest of its generating files for those who develop it."""
    from kbuild.generate.templates import template_root

    package = Path(__file__).parents[1]
    files = [*package.glob("generate/*.py"), *template_root().glob("project/**/*")]
    files += [*package.glob("languages/**/*.py"), *template_root().glob("launcher/*")]
    newest = max(file.stat().st_mtime_ns for file in files)
    return f"{__version__}/{newest}"
