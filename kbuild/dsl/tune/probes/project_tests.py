"""Runs pytest in a copy of a process that has already imported Torch and pytest."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from kbuild.dsl.tune.probes.processes import pause_watchdog, send_message


def measure(settings: Mapping[str, Any], jobs: Iterable[Mapping[str, Any]]) -> None:
    """Run pytest once per job: with its `arguments`, in the folder `root`, with `environ`."""
    os.chdir(settings["root"])
    os.environ.update(settings["environ"])
    sys.path[:0] = [settings["root"], *settings["environ"]["PYTHONPATH"].split(os.pathsep)]
    # Restore what pytest expects at its start, and remove the stand-ins for kbuild's packages.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kbuild"]:
        del sys.modules[name]
    for job in jobs:
        send_message({"testing": job["id"], "pid": os.getpid()})
        # A test may take longer than the watchdog allows.
        pause_watchdog()
        try:
            pytest: Any = importlib.import_module("pytest")
        except ImportError as error:
            send_message({"done": job["id"], "error": str(error)})
            return
        code = int(pytest.main(list(job["arguments"])))
        send_message({"done": job["id"], "code": code})
        pause_watchdog()
