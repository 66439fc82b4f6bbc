"""kbuild with answers instead of compilers, to measure what it does beside them.

    python benchmarks/standin_build.py build PROJECT ...

Every variant has a toolchain, and what the build of one leaves is written at once: a folder of
small files, and the state with all files of the project that a plan looks at. Nothing else is
replaced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbuild.__main__ import main
from kbuild.build.state import record_build
from kbuild.pipeline import build as pipeline
from kbuild.pipeline.package import finalize_stage
from kbuild.pipeline.result import BuildResult
from kbuild.plan.plan import Requirements, VariantPlan
from kbuild.system.file_state import identify
from kbuild.system.sourcetree import SourceTree
from kbuild.system.workspace import Workspace
from kbuild.toolchains.base import Toolchain, ToolchainSource

_PROGRAM = Path(sys.executable)
_SKIPPED = ("build", ".git")


class StandIn(ToolchainSource):
    """Serves everything."""

    name = "stand-in"

    def unsupported_reason(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.unsupported_reason`."""

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        versions = (("torch", str(requires.torch)), (requires.backend, str(requires.toolkit)))
        return Toolchain(self.name, _PROGRAM, _PROGRAM, _PROGRAM, versions=versions)


def leave(context: Any, plans: Sequence[VariantPlan]) -> list[BuildResult]:
    """What a good build leaves."""
    root: Path = context.project.root
    tree = SourceTree(root)
    states = {path: identify(root / path) for path in tree.walk(".", skip=_SKIPPED)}
    results = []
    for plan in plans:
        target = context.target_of(plan)
        target.mkdir(parents=True)
        for name in ("__init__.py", "_ops.py", f"{plan.ops_name}.abi3.so"):
            (target / name).write_text(plan.variant)
        Workspace(root, plan.variant).prepare()
        whole = plan.with_toolchain(context.tools.provision(plan.requires).summary)
        finalize_stage(whole, target, context.builder)
        record_build(whole, target, states).write(Workspace(root, plan.variant).state)
        results.append(BuildResult(plan.variant, "built", path=target))
    return results


if __name__ == "__main__":
    pipeline.find_toolchains = lambda *_, **__: StandIn()
    pipeline._build_in_parallel = leave  # noqa: SLF001 - there is no interface around compilers
    pipeline.source_check_failures = lambda *_: {}
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
