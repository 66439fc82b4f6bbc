"""Knowing that a variant is up to date: what the last good build read, and what it left."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.fileset import replace_atomically
from kbuild.filestate import Look, identify, looks, unchanged
from kbuild.installation import package_digest
from kbuild.plan import VariantPlan
from kbuild.untrusted import remembered

_FORMAT = 2


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
    """Project files that were read, as they were then, by path relative to the project; None for
    one that was looked for and not there."""
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


def record(plan: VariantPlan, output: Path, inputs: Mapping[str, Look]) -> BuildState:
    """The record of a build that just ended well, and of its inputs as it read them."""
    files = (path for path in output.rglob("*") if path.is_file())
    return BuildState(
        plan=plan.digest,
        generator=generator(),
        output=str(output),
        inputs=dict(sorted(inputs.items())),
        outputs={path.relative_to(output).as_posix(): identify(path) for path in sorted(files)},
    )


def read_state(target: Path) -> BuildState | None:
    """The last good build's record; None when there is none that this kbuild can read."""
    return remembered(target, _understood)


def _understood(document: Mapping[str, Any]) -> BuildState | None:
    data = dict(document)
    if data.pop("format") != _FORMAT:
        return None
    data["inputs"], data["outputs"] = looks(data["inputs"]), looks(data["outputs"])
    return BuildState(**data)


def generator() -> str:
    """Which kbuild makes and checks variants: a digest of all that it consists of."""
    return package_digest()
