"""The state of a variant after its last good build, which tells whether it is up to date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.plan.plan import VariantPlan
from kbuild.system.cache import BUILD_STATE, Cache
from kbuild.system.code_digest import package_digest
from kbuild.system.file_state import FileState, all_unchanged, identify, parse_file_states


@dataclass(frozen=True)
class BuildState:
    """The inputs and outputs of one good build."""

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

    def write(self, workspace: Path) -> None:
        """Keep the state in the variant's workspace."""
        Cache(workspace, BUILD_STATE).put_json("", vars(self))


def record_build(plan: VariantPlan, output: Path, inputs: Mapping[str, FileState]) -> BuildState:
    """The state after a build that just ended well, with its inputs as it read them."""
    files = (path for path in output.rglob("*") if path.is_file())
    return BuildState(
        plan=plan.digest,
        generator=package_digest(),
        output=str(output),
        inputs=dict(sorted(inputs.items())),
        outputs={path.relative_to(output).as_posix(): identify(path) for path in sorted(files)},
    )


def read_state(workspace: Path) -> BuildState | None:
    """The state after the last good build; None when there is none that this kbuild can read."""
    return Cache(workspace, BUILD_STATE).get_json("", _parse)


def _parse(data: Mapping[str, Any]) -> BuildState:
    plan, generator, output = (str(data[name]) for name in ("plan", "generator", "output"))
    inputs, outputs = (parse_file_states(data[name]) for name in ("inputs", "outputs"))
    return BuildState(plan, generator, output, inputs, outputs)
