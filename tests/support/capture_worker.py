"""Runs the worker of `kbuild capture` on modules that a test writes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.language import LANGUAGES
from kbuild.system.processes import LineListener, LocalRunner
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller
from tests.support.dsl.triton_kernels import VERSION
from tests.support.stores import dsl_store, shared_folder, warm_cache

ROOT = Path(__file__).parents[2]


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
