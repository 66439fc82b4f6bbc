"""Runs of variants on a worker: whether one fits, which GPU it gets, its tests and its probes.

For checks it loads variants in probes.
"""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kbuild.backends import BACKENDS
from kbuild.checks.probe_cache import ProbeCache, ProbeQuestion
from kbuild.checks.probe_process import ProbeAnswer, is_sandboxed, passed_variables
from kbuild.pipeline.compatibility import check_compatibility
from kbuild.pipeline.testing import ProjectTests, TestProcess
from kbuild.plan.metadata import read_metadata
from kbuild.plugins.cluster.devices import WorkerDevice, WorkerRuntime, held_device
from kbuild.project.variant import Variant, host_system, variant_named
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LocalRunner, Runner
from kbuild.system.temporary import temporary_folder
from kbuild.toolchains.facts import FactCache, interpreter_facts
from kbuild.toolchains.host import release_of

_TIMEOUT = ("timeout", "--kill-after=10")
_TIME_IS_OVER = (124, 137)
"""Exit codes of `timeout` that has ended its program."""
_NO_LIBRARY = "cannot open shared object file"
"""A message of the dynamic loader."""
_OF_USER = ("HOME", "USER", "LOGNAME")
_OF_PROBES = ("PYTHONSAFEPATH", "HF_HUB_OFFLINE")
_MAX_OUTPUT = 256 << 10
"""Characters of a run's output that travel back: the last."""


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
def device_for(
    variant: Variant, folder: Path, runtime: WorkerRuntime
) -> Iterator[WorkerDevice | None]:
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
            "hung": done.returncode in _TIME_IS_OVER and done.seconds >= seconds,
        }
        outputs = {"result": b64encode(json.dumps(result).encode()).decode()}
        if junit.is_file():
            outputs["junit"] = b64encode(junit.read_bytes()).decode()
    return {"outputs": outputs}


def answer_questions(request: Mapping[str, Any], cache: Path) -> dict[str, Any]:
    """Ask probes about a variant in this machine's interpreter.

    What was asked before is answered from the worker's own cache while nothing has changed here.

    Returns:
        `outputs`: `result`, a JSON object with an answer to each question that could be asked; or
        `refusal` when the variant does not fit the interpreter.

    Raises:
        KbuildError, OSError: nothing can be asked here.
    """
    runtime, variant = (
        WorkerRuntime.from_json(request["runs_on"]),
        variant_named(request["variant"]),
    )
    if variant is not None and variant.system not in (None, host_system()):
        return {"refusal": f"this machine is {host_system()}"}
    probe_cache, answers = ProbeCache(cache, fresh=bool(request["fresh"])), []
    with temporary_folder("checks") as space:
        for name, folder in request["folders"].items():
            shutil.copytree(folder, space / name)
        for probe, parts, general in request["questions"]:
            arguments = tuple(
                part if isinstance(part, str) else space / part["archive"] / part["path"]
                for part in parts
            )
            python = Path(runtime.python)
            subject = ProbeQuestion(python, probe, arguments).subject
            answer = probe_cache.ask(
                LocalRunner(), python, probe, *arguments, general=tuple(general)
            )
            reason = _refusal_of(answer, variant, runtime)
            if reason:
                return {"refusal": reason}
            if answer.state == "absent":  # there is no client here, which another may have
                continue
            facts = {
                "subject": subject,
                "remembered": bool(probe_cache.cached_facts(probe, Path(arguments[0]))),
            }
            reason = answer.reason[-_MAX_OUTPUT:].replace(f"{space}/", "")
            answers.append({**asdict(replace(answer, files=())), **facts, "reason": reason})
    if not answers:
        return {"refusal": f"`{runtime.python}` has no `kernels` client"}
    own = {"python": runtime.version, "torch": runtime.torch, "sandboxed": is_sandboxed()}
    result = json.dumps({**own, "answers": answers})
    return {"outputs": {"result": b64encode(result.encode()).decode()}}


def _refusal_of(answer: ProbeAnswer, variant: Variant | None, runtime: WorkerRuntime) -> str:
    """The reason that another worker may load the variant; empty for an answer that counts."""
    if answer.state == "misfit":
        return answer.reason
    if answer.state == "lacking":
        return f"`{runtime.python}` has no {answer.reason}"
    backend = BACKENDS.find(variant.backend) if variant else None
    has_device = any(backend and device.backend == backend.name for device in runtime.devices)
    if backend is None or backend.runs_on_cpu or has_device:
        return ""
    # Without a GPU there may be no driver either, which is no fault of the variant.
    lacks_library = answer.state == "failed" and _NO_LIBRARY in answer.reason
    is_lacking = lacks_library or answer.facts.get("deviceless")
    last = answer.reason.splitlines()[-1:] or [""]
    return f"it finds no GPU for {backend.title}: {last[0]}" if is_lacking else ""


def _test_environment(space: Path, device: WorkerDevice | None) -> dict[str, str]:
    """The variables that tests see of this machine's environment, and their GPU."""
    own = {name: text for name, text in os.environ.items() if name in _OF_USER}
    gpu = device.environment(os.environ) if device else {}
    temporary = space / "tmp"
    temporary.mkdir()
    passed = {name: text for name, text in passed_variables().items() if name not in _OF_PROBES}
    return {**passed, **own, **gpu, "TMPDIR": str(temporary)}
