"""The process in which a worker of a cluster runs kbuild.

    python -m kbuild.plugins.cluster.worker_compiler < REQUEST > ANSWER

The request is a JSON object with a job, the cache folder and what else the job needs. The last line
of the answer is a JSON object. For objects, kbuild configures the tree of a plan and answers with
the toolchain's environment and, by key, the commands. For images it compiles them and answers with
records and codes. Asked for a runtime, it answers with the interpreter that runs variants; given
tests, it runs them; given questions of checks, it asks probes. Or it answers why it cannot.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kbuild.build.compile import Compilation
from kbuild.dsl.aot_compiler import AotCompiler
from kbuild.dsl.compile_environment import SourceSnapshot
from kbuild.dsl.environment import DslEnvironments
from kbuild.dsl.tune.host import CPU, Device, ProbeHost
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.toolchains import find_toolchains
from kbuild.plan.selection import Selection, systems_in_names
from kbuild.plugins.cluster.devices import WorkerDevice, WorkerRuntime
from kbuild.plugins.cluster.jobs import (
    IMAGE_SUFFIXES,
    CompileJob,
    ImageJob,
    parse_job,
    read_generated,
)
from kbuild.plugins.cluster.objects import object_units
from kbuild.plugins.cluster.worker_runs import answer_questions, run_tests
from kbuild.system.budget import make_budget, open_run
from kbuild.system.errors import BuildError, KbuildError
from kbuild.system.files import FileSet
from kbuild.system.processes import LocalRunner
from kbuild.system.services import Services
from kbuild.system.store import open_store
from kbuild.system.ui import Ui
from kbuild.system.workspace import Workspace
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import choose_python
from kbuild.toolchains.wheels.installer import WheelInstaller

_PARENT_DEATH_SIGNAL = 1
"""Option of Linux's `prctl`."""


def prepare(job: CompileJob, project: Path, cache: Path, generated: FileSet) -> dict[str, Any]:
    """Provision the plan's toolchain and configure its tree.

    `generated` is what the machine that builds has generated from images.

    Raises:
        KbuildError: this machine cannot.
    """
    services = Services(LocalRunner(), Ui(verbosity=-1), cache, project)
    selection = Selection(cross=systems_in_names([job.plan.variant]))
    tools = find_toolchains(BuildOptions(selection, toolchain=job.toolchain), services)
    with open_store(cache).in_use():
        toolchain = tools.provision(job.plan.requires)
    plan = job.plan.with_toolchain(toolchain.summary)
    space = Workspace(project, plan.variant)
    with open_run(make_budget(), cache) as run, space.locked() as lock:
        compilation = Compilation(
            plan, toolchain, space, services.runner, run, lambda *_: None, lock
        )
        tree = compilation.configured_tree(generated)
        commands = {unit.key: unit.argv for unit in object_units(tree)}
    return {
        "tree": str(tree.tree),
        "environ": dict(toolchain.env),
        "compilers": [list(entry) for entry in toolchain.compilers],
        "variant": plan.variant,
        "commands": commands,
    }


def compile_images(job: ImageJob, keys: Sequence[str], cache: Path, memory: int) -> dict[str, Any]:
    """Compile some images of a job, one after the other.

    Raises:
        KbuildError: they cannot be compiled.
    """
    runner = LocalRunner()
    installer = WheelInstaller(runner, open_store(cache))
    wanted = [job.images[key] for key in keys]
    with (
        open_store(cache).in_use(),
        open_run(make_budget(1, memory), cache) as run,
        closing(AotCompiler(run, DslEnvironments(installer))) as compiler,
    ):
        entries = compiler.compile_images(job, SourceSnapshot(job.texts), wanted)
    parts = {
        f"{key}{suffix}": b64encode(part).decode()
        for key, entry in entries.items()
        for suffix, part in zip(IMAGE_SUFFIXES, entry, strict=True)
    }
    return {"outputs": parts}


def find_runtime(asked: str, cache: Path) -> WorkerRuntime:
    """The interpreter that variants are run with, and the GPUs that its Torch sees.

    Raises:
        ToolchainError: the one that is asked for is no interpreter.
    """
    runner = LocalRunner()
    facts = choose_python(Path(asked) if asked else None, FactCache(cache), runner)
    python, torch = Path(facts["python"]["executable"]), facts["torch"]
    has_pytest = runner.run((str(python), "-c", "import pytest")).ok
    seen: tuple[Device, ...] = ()
    if torch:
        with ProbeHost(runner, python, cache) as host:
            seen = host.devices().devices
    devices = tuple(
        WorkerDevice(backend=device.backend, **asdict(device))
        for device in seen
        if device.id != CPU
    )
    version, client = facts["python"]["version"], facts["kernels"] or ""
    release = torch["version"] if torch else ""
    return WorkerRuntime(str(python), version, release, client, has_pytest, devices)


def _end_with_parent() -> None:
    """Have SIGTERM end what this process has started, and send it when the worker is killed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def answer_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one request.

    Raises:
        KbuildError, OSError: there is none.
    """
    cache = Path(request["cache"])
    if "runtime" in request:
        return find_runtime(request["runtime"], cache).to_json()
    if "tests" in request:
        _end_with_parent()
        return run_tests(request, cache)
    if "questions" in request:
        _end_with_parent()
        return answer_questions(request, cache)
    job = parse_job(request["job"].encode())
    if isinstance(job, ImageJob):
        return compile_images(job, request["keys"], cache, int(request["memory"]))
    generated = read_generated(Path(request["generated"])) if request["generated"] else FileSet()
    return prepare(job, Path(request["project"]), cache, generated)


def main() -> int:
    """Answer the request at standard input."""
    request = json.load(sys.stdin)
    try:
        answer = answer_request(request)
    except BuildError as error:
        answer = {"failure": "\n".join((error.message, *error.excerpt))}
    except (KbuildError, OSError) as error:
        answer = {"refusal": str(error)}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
