"""Knowing that a variant is up to date: what the last good build read, and what it left."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.plan.plan import VariantPlan
from kbuild.system.code_digest import package_digest
from kbuild.system.file_state import FileState, all_unchanged, identify, parse_file_states
from kbuild.system.files import replace_atomically
from kbuild.system.untrusted import read_cache_file

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
    inputs: Mapping[str, FileState]
    """Project files that were read, as they were then, by path relative to the project; None for
    one that was looked for and not there."""
    outputs: Mapping[str, FileState]
    """Files of the variant directory, by path relative to it."""

    def holds(self, plan: VariantPlan, root: Path, output: Path) -> bool:
        """True when building `plan` into `output` again would change nothing."""
        return (
            self.plan == plan.digest
            and self.generator == package_digest()
            and self.output == str(output)
            and all_unchanged(root, self.inputs)
            and all_unchanged(output, self.outputs)
        )

    def write(self, target: Path) -> None:
        """Save the record."""
        data = {"format": _FORMAT, **vars(self)}
        replace_atomically(target, json.dumps(data, indent=1).encode())


def record_build(plan: VariantPlan, output: Path, inputs: Mapping[str, FileState]) -> BuildState:
    """The record of a build that just ended well, and of its inputs as it read them."""
    files = (path for path in output.rglob("*") if path.is_file())
    return BuildState(
        plan=plan.digest,
        generator=package_digest(),
        output=str(output),
        inputs=dict(sorted(inputs.items())),
        outputs={path.relative_to(output).as_posix(): identify(path) for path in sorted(files)},
    )


def read_state(target: Path) -> BuildState | None:
    """The last good build's record; None when there is none that this kbuild can read."""
    return read_cache_file(target, _understood)


def _understood(document: Mapping[str, Any]) -> BuildState | None:
    data = dict(document)
    if data.pop("format") != _FORMAT:
        return None
    data["inputs"], data["outputs"] = (
        parse_file_states(data["inputs"]),
        parse_file_states(data["outputs"]),
    )
    return BuildState(**data)
