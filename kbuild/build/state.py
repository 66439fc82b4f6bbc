"""The record of a variant's last good build, which tells whether the variant is up to date."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbuild.plan.plan import VariantPlan
from kbuild.system.cache import BUILD_STATE, Cache
from kbuild.system.code_digest import package_digest
from kbuild.system.file_state import FileState, identify
from kbuild.system.record import Record, read_record, texts


def record_build(
    workspace: Path, plan: VariantPlan, output: Path, inputs: Mapping[str, FileState]
) -> None:
    """Record a build that just ended well.

    Args:
        workspace: the variant's folder in `.kbuild`.
        plan: the plan, toolchain included.
        output: the variant directory.
        inputs: project files as the build read them, by path relative to the project; None for one
            that was looked for and not there.
    """
    outputs = {str(path): identify(path) for path in sorted(output.rglob("*")) if path.is_file()}
    answer = {"plan": plan.digest, "output": str(output)}
    record = Record(answer, {**inputs, **outputs}, package_digest())
    record.write(Cache(workspace, BUILD_STATE))


def read_state(workspace: Path) -> Record | None:
    """The record of the last good build; None when there is none."""
    return read_record(Cache(workspace, BUILD_STATE), parse=texts("plan", "output"))


def is_up_to_date(workspace: Path, plan: VariantPlan, root: Path, output: Path) -> bool:
    """True when building `plan` of the project `root` into `output` again would change nothing."""
    record = read_state(workspace)
    return (
        record is not None
        and record.answer == {"plan": plan.digest, "output": str(output)}
        and record.holds(root, None)
    )
