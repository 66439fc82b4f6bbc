"""Runs the worker of `kbuild capture` on modules that a test writes, once for many functions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.language import LANGUAGES
from kbuild.ops.section import DslSection, read_section
from kbuild.plugins.capture.description import Declaration
from kbuild.plugins.capture.session import capture
from kbuild.plugins.capture.wrappers import CapturedWrapper
from kbuild.system.processes import LineListener, LocalRunner
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller
from tests.support.dsl.triton_kernels import VERSION
from tests.support.stores import dsl_store, shared_folder, warm_cache

ROOT = Path(__file__).parents[2]
DRIVER = """
import io, sys
from kbuild.plugins.capture.worker import request
for line in sys.stdin:
    sys.stdin = io.StringIO(line)
    request.main()
    print("done", flush=True)
"""


@dataclass
class OneWorker(LocalRunner):
    """Runs all requests in one process: Torch and DSLs take many seconds to be imported."""

    folder: Path
    """The home of the process."""
    random_calls: int
    worker: subprocess.Popen[str] | None = None  # noqa: TID251 - it outlives a call

    def run(self, command: Any, **options: Any) -> Any:
        if self.worker is None:
            own = {"HOME": str(self.folder), "TMPDIR": str(self.folder)}
            self.worker = subprocess.Popen(  # noqa: TID251
                (sys.executable, "-c", DRIVER), env=options["env"] | own, cwd=options["cwd"],
                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        requests = [
            {**request, "random_calls": self.random_calls}
            for request in json.loads(options["stdin"])
        ]
        self.worker.stdin.write(json.dumps(requests) + "\n")
        self.worker.stdin.flush()
        while (line := self.worker.stdout.readline()) != "done\n":
            assert line, "the worker ended"
        return SimpleNamespace(returncode=0, output="")


@dataclass
class Captures:
    """Captures functions of a kernel's section in one worker."""

    root: Path
    section: DslSection
    environments: DslEnvironments
    runner: OneWorker

    def declared(self, declaration: Declaration) -> tuple[CapturedWrapper, tuple[str, ...]]:
        """See `capture`."""
        return capture(declaration, self.root, self.section, self.environments, self.runner)

    def __call__(
        self,
        function: str,
        arguments: Mapping[str, Any],
        sizes: Mapping[str, tuple[int, int]] | None = None,
        *,
        backward: bool = False,
    ) -> tuple[CapturedWrapper, tuple[str, ...]]:
        """The ops of a function `module:name`, and the notes."""
        own = Declaration(function, "f", arguments, {}, sizes or {}, backward=backward)
        return self.declared(own)


@contextmanager
def captures(
    root: Path, table: Mapping[str, Any], cache: Path, random_calls: int = 8
) -> Iterator[Captures]:
    """A worker for the functions of a project's section, until the end of the context.

    Args:
        root: the project.
        table: the table `[kernel.k]`.
        cache: has the compiler, or gets it.
        random_calls: how many calls of each function are compared with its ops.
    """
    home = root / ".home"
    home.mkdir()
    runner = OneWorker(home, random_calls)
    environments = DslEnvironments(WheelInstaller(LocalRunner(), open_store(cache)))
    section = read_section("k", {"backend": "cuda", **table})
    try:
        yield Captures(root, section, environments, runner)
    finally:
        if runner.worker is not None:
            runner.worker.kill()
            runner.worker.communicate()


def worker_answers(
    modules: Mapping[str, str],
    requests: Mapping[str, Mapping[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
    listen: LineListener | None = None,
) -> dict[str, Any]:
    """The worker's answer to each request.

    Args:
        modules: name of a file -> its text.
        requests: a name -> what the request has beside its folder, its answer and its time.
        tmp_path_factory: of pytest.
        listen: gets each line that the worker prints.
    """
    store = dsl_store(f"triton-{VERSION}", "triton", tmp_path_factory)
    cache = warm_cache(shared_folder(tmp_path_factory) / "capture-cache", store, tmp_path_factory)
    runner = LocalRunner()
    environments = DslEnvironments(WheelInstaller(runner, open_store(cache)))
    pins = LANGUAGES.get("triton").environment((f"triton=={VERSION}",), "cuda13")
    triton = environments.provide("triton", pins).root
    folder = tmp_path_factory.mktemp("author")
    for file, text in modules.items():
        (folder / file).write_text(text)
    own = {"folders": [str(folder)], "seconds": 300}
    complete = [
        {"sizes": {}, "examples": {}, **own, **request, "answer": str(folder / f"{name}.json")}
        for name, request in requests.items()
    ]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), str(triton), str(ROOT))),
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = (sys.executable, "-m", "kbuild.plugins.capture.worker.request")
    done = runner.run(command, cwd=folder, env=env, stdin=json.dumps(complete), listen=listen)
    assert done.returncode == 0, done.output
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in requests}
