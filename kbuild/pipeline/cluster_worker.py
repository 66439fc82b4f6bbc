"""What a worker of a cluster has kbuild do in a process of its own: configure the tree of a plan.

    python -m kbuild.pipeline.cluster_worker < REQUEST > ANSWER

The request is a JSON object with the job, the project's folder and the cache folder. The last line
of the answer is a JSON object: the toolchain's environment and, by key, the commands that make
objects; or why there are none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kbuild.build.compile import Compilation
from kbuild.cluster.jobs import CompileJob, parse_job
from kbuild.cluster.objects import object_units
from kbuild.errors import KbuildError
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.toolchains import toolchain_source
from kbuild.runtime.budget import make_budget, open_run
from kbuild.runtime.processes import LocalRunner
from kbuild.runtime.workspace import Workspace
from kbuild.services import Services
from kbuild.store import open_store
from kbuild.ui import Ui


def prepare(job: CompileJob, project: Path, cache: Path) -> dict[str, Any]:
    """Provision the plan's toolchain and configure its tree.

    Raises:
        KbuildError: this machine cannot.
    """
    services = Services(LocalRunner(), Ui(verbosity=-1), cache, project)
    tools = toolchain_source(BuildOptions(toolchain=job.toolchain), services)
    with open_store(cache).in_use():
        toolchain = tools.provision(job.plan.requires)
    plan = job.plan.with_toolchain(toolchain.summary)
    space = Workspace(project, plan.variant)
    with open_run(make_budget(), cache) as run, space.locked() as lock:
        compilation = Compilation(
            plan, toolchain, space, services.runner, run, lambda *_: None, lock
        )
        tree = compilation.configured_tree()
        commands = {unit.key: unit.argv for unit in object_units(tree)}
    return {
        "tree": str(tree.tree),
        "environ": dict(toolchain.env),
        "compilers": [list(entry) for entry in toolchain.compilers],
        "variant": plan.variant,
        "commands": commands,
    }


def main() -> int:
    """Answer one request."""
    request = json.load(sys.stdin)
    try:
        job = parse_job(request["job"].encode())
        answer = prepare(job, Path(request["project"]), Path(request["cache"]))
    except (KbuildError, OSError) as error:
        answer = {"refusal": str(error)}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
