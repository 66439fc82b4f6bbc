"""The process in which a worker of a cluster runs kbuild.

    python -m kbuild.plugins.cluster.worker_compiler < REQUEST > ANSWER

The request is a JSON object with a job, the cache folder and what else the job needs. The last line
of the answer is a JSON object. For objects, kbuild configures the tree of a plan and answers with
the toolchain's environment and, by key, the commands. For images it compiles them and answers with
records and codes. Asked for a runtime, it answers with the interpreter that runs variants; given
tests, it runs them. Or it answers why it cannot.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import sleep
from typing import Any

from kbuild.backends import BACKENDS
from kbuild.build.compile import Compilation
from kbuild.checks.probe_process import passed_variables
from kbuild.dsl.aot_compiler import AotCompiler
from kbuild.dsl.compile_environment import SourceSnapshot
from kbuild.dsl.environment import DslEnvironments
from kbuild.dsl.tune.host import CPU, Device, ProbeHost
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.testing import ProjectTests, TestProcess, check_compatibility
from kbuild.pipeline.toolchains import find_toolchains
from kbuild.plan.metadata import read_metadata
from kbuild.plan.selection import Selection, systems_in_names
from kbuild.plugins.cluster.jobs import (
    IMAGE_SUFFIXES,
    CompileJob,
    ImageJob,
    parse_job,
    read_generated,
)
from kbuild.plugins.cluster.objects import object_units
from kbuild.project.variant import Variant, host_system
from kbuild.system.budget import make_budget, open_run
from kbuild.system.errors import BuildError, KbuildError, StorageError, ToolchainError
from kbuild.system.files import FileSet
from kbuild.system.processes import LocalRunner, Runner
from kbuild.system.services import Services
from kbuild.system.store import open_store
from kbuild.system.temporary import temporary_base, temporary_folder
from kbuild.system.ui import Ui
from kbuild.system.workspace import Workspace, lock_file
from kbuild.toolchains.facts import FactCache, interpreter_facts
from kbuild.toolchains.host import choose_python, release_of
from kbuild.toolchains.wheels.installer import WheelInstaller

_TIMEOUT = ("timeout", "--kill-after=10")
_TIME_IS_OVER = (124, 137)
"""Exit codes of `timeout` that has ended its program."""
_OF_USER = ("HOME", "USER", "LOGNAME")
_OF_PROBES = ("PYTHONSAFEPATH", "HF_HUB_OFFLINE")
_PAUSE = 0.1
"""Seconds until a GPU that is held is tried again."""
_MAX_OUTPUT = 256 << 10
"""Characters of a run's output that travel back: the last."""


@dataclass(frozen=True)
class WorkerRuntime:
    """The interpreter and the devices with which a worker runs variants."""

    python: str
    """Path of the interpreter."""
    version: str
    """Version of Python."""
    torch: str
    """Version; empty without Torch."""
    kernels: str
    """Version of the client; empty without it."""
    pytest: bool
    devices: tuple[Device, ...]

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> WorkerRuntime:
        """Read the object that `to_json` wrote."""
        devices = tuple(Device(**device) for device in facts["devices"])
        return cls(**{**facts, "devices": devices})

    def to_json(self) -> dict[str, Any]:
        """The runtime as a JSON object."""
        return asdict(self)


def device_environment(device: Device, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a process sees this GPU alone, and calls it the first."""
    variable = BACKENDS.get(device.backend).visible_devices
    number = int(device.id.rpartition(":")[2])
    visible = [part.strip() for part in environ.get(variable, "").split(",") if part.strip()]
    return {variable: visible[number] if number < len(visible) else str(number)}


@contextmanager
def held_device(
    devices: Sequence[Device],
    environ: Mapping[str, str],
) -> Iterator[Device]:
    """Wait for one of some GPUs that no other process of this user on this machine holds.

    Raises:
        StorageError: the locks cannot be written.
    """
    folder = Path(temporary_base()) / f"kbuild-devices-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    # The folder has a known name in a folder where everybody can write.
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise StorageError(f"`{folder}` belongs to another user")
    while True:
        for device in devices:
            ((variable, value),) = device_environment(device, environ).items()
            # A measurement of `kbuild tune` holds the lock of that name as well.
            name = device.uuid or f"{variable}-{value.replace(os.sep, '_')}"
            handle = lock_file(folder / f"{name}.lock")
            if handle is not None:
                try:
                    yield device
                finally:
                    os.close(handle)
                return
        sleep(_PAUSE)


def misfit(variant: Variant, runtime: WorkerRuntime, cache: Path, runner: Runner) -> str:
    """The reason that an interpreter of this machine cannot load a variant; empty when it can.

    What its files tell decides first, then the `kernels` client if it is installed there.
    """
    if variant.system not in (None, host_system()):
        return f"this machine is {host_system()}"
    if not runtime.torch:
        return f"`{runtime.python}` has no Torch"
    release, wanted = release_of(runtime.torch), variant.framework_version
    is_exact = variant.framework == "torch" and release != wanted
    is_older = variant.framework == "torch-stable-abi" and wanted is not None and release < wanted
    if is_exact or is_older:
        return f"`{runtime.python}` has Torch {runtime.torch}"
    backend = BACKENDS.find(variant.backend)
    facts = interpreter_facts(Path(runtime.python), FactCache(cache), runner)
    if backend and backend.torch_field and not facts["torch"]["built_for"].get(backend.torch_field):
        return f"Torch {runtime.torch} is not built for {backend.title}"
    if not runtime.kernels:
        return ""
    fit = check_compatibility([str(variant)], Path(runtime.python), runner)
    return "" if fit.unknown or fit.chosen else fit.refused.get(str(variant), "it does not fit")


@contextmanager
def device_for(variant: Variant, folder: Path, runtime: WorkerRuntime) -> Iterator[Device | None]:
    """A GPU that the images of a variant run on, held; None for variants of the processor.

    Raises:
        ToolchainError: there is none.
    """
    backend = BACKENDS.find(variant.backend)
    if backend is None or backend.runs_on_cpu:
        yield None
        return
    devices = [device for device in runtime.devices if device.backend == variant.backend]
    if not devices:
        raise ToolchainError(f"Torch {runtime.torch} finds no GPU for {backend.title}")
    archs = read_metadata(folder).archs
    fitting = [
        device
        for device in devices
        if not archs or any(backend.arch_runs_on(arch, device.capability) for arch in archs)
    ]
    if not fitting:
        names = ", ".join(sorted({f"{device.name} ({device.capability})" for device in devices}))
        raise ToolchainError(f"its images for {', '.join(archs or ())} do not run on {names}")
    with held_device(fitting, os.environ) as device:
        yield device


def run_tests(request: Mapping[str, Any], cache: Path) -> dict[str, Any]:
    """Run a project's tests against one variant, with none of this process's variables but a few.

    Returns:
        `outputs`: `result`, a JSON object, and `junit` if pytest wrote a report; or `refusal`.

    Raises:
        KbuildError, OSError: they cannot be run here.
    """
    runtime, runner = WorkerRuntime.from_json(request["runs_on"]), LocalRunner()
    tests, seconds = ProjectTests.from_json(request["tests"]), float(request["seconds"])
    variant, folders = Variant.parse(request["variant"]), request["folders"]
    reason = misfit(variant, runtime, cache, runner)
    if not reason and not runtime.pytest:
        reason = f"`{runtime.python}` has no pytest"
    if not reason and shutil.which(_TIMEOUT[0]) is None:
        reason = f"there is no program `{_TIMEOUT[0]}`, which ends tests that hang"
    if reason:
        return {"refusal": reason}
    with temporary_folder("tests") as space:
        root, built = space / "project", space / "build" / str(variant)
        shutil.copytree(folders["project"], root)  # tests may write into it
        built.parent.mkdir()
        shutil.copytree(folders["variant"], built)
        with device_for(variant, built, runtime) as device:
            junit, limit = space / "junit.xml", (*_TIMEOUT, str(seconds))
            environ = _test_environment(space, device)
            process = TestProcess(runner, Path(runtime.python), environ, junit, limit)
            done = process.run(tests, root, built, built)
        result = {
            "status": done.returncode,
            "output": done.output[-_MAX_OUTPUT:].replace(f"{root}/", ""),
            "seconds": done.seconds,
            "torch": runtime.torch,
            "device": device.name if device else "",
            # A process that was killed for want of memory has one of these codes, too.
            "hung": done.returncode in _TIME_IS_OVER and done.seconds >= seconds,
        }
        outputs = {"result": b64encode(json.dumps(result).encode()).decode()}
        if junit.is_file():
            outputs["junit"] = b64encode(junit.read_bytes()).decode()
    return {"outputs": outputs}


def _test_environment(space: Path, device: Device | None) -> dict[str, str]:
    """The variables that tests see of this machine's environment, and their GPU."""
    own = {name: text for name, text in os.environ.items() if name in _OF_USER}
    gpu = device_environment(device, os.environ) if device else {}
    temporary = space / "tmp"
    temporary.mkdir()
    passed = {name: text for name, text in passed_variables().items() if name not in _OF_PROBES}
    return {**passed, **own, **gpu, "TMPDIR": str(temporary)}


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
    # `kbuild toolchain prune` on this machine removes nothing meanwhile.
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
        # One at a time: Dask starts as many of these processes as there are processors.
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
    devices = tuple(device for device in seen if device.id != CPU)
    version, client = facts["python"]["version"], facts["kernels"] or ""
    release = torch["version"] if torch else ""
    return WorkerRuntime(str(python), version, release, client, has_pytest, devices)


def _end_with_parent() -> None:
    """Have SIGTERM end what this process has started, and send it when the worker is killed."""
    # By an exception, because `finally` blocks end what this process has started.
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
    # What does not compile is given to one more worker; a refusal keeps the whole job from this
    # one.
    except BuildError as error:
        answer = {"failure": "\n".join((error.message, *error.excerpt))}
    except (KbuildError, OSError) as error:
        answer = {"refusal": str(error)}
    # The answer gets a line of its own, even if what was printed before ends without a newline.
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
