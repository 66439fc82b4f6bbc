"""Loads one variant in this process, the way a user's program would.

Arguments: `FOLDER VARIANT BACKEND ID MODULES SECONDS`, see `start.py`. BACKEND is the
JSON of `Backend.probe_facts`. What the installed Torch's version file rules out is a misfit, and
nothing is imported. With the `kernels` client, its own rules say whether the variant fits this
machine, and it does the loading. Without it, or for a backend that it does not know, the folder is
imported as a package under its id. MODULES, separated by commas, are the
framework's own and those that the kernel says it needs, without which nothing is tried; SECONDS is
how long one call of an op may take. Says JSON objects: `doing` says what begins, the last one has
`state` and `reason`, and, when it is loaded, `torch`, `ops` (see `op_calls.py`) and `registrations`
(outside its namespace, see `registrations.py`); when it is not, `missing` (the module that was not
found), `torch`, and `deviceless` (whether it asked Torch for a device that is not here). An answer
that stays as long as files do names them in `files`.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOAD_LIMIT_S = 300
SHOWN_LINES = 6
COMPILED = re.compile(r"torch(?:(\d)(\d+)|-stable-abi\d+)-")
"""Start of a compiled variant, with the Torch release that it is for, or for the stable ABI."""
RELEASE = re.compile(r"(\d+)\.(\d+)")
VERSION_FILE = "version.py"
ASSIGNMENT = re.compile(r"^(\w+)(?:\s*:[^=\n]+)?\s*=\s*['\"]?([^'\"\s]+)", re.MULTILINE)
Answer = tuple[str, str, dict[str, Any]]
Say = Callable[[dict[str, Any]], None]
Backend = dict[str, Any]
"""The facts that `Backend.probe_facts` gives."""


@dataclass(frozen=True)
class Task:
    """One variant to load."""

    folder: Path
    backend: Backend
    identifier: str
    limit_s: float
    say: Say

    def tell(self, doing: str) -> None:
        """Say what begins: it may be the last that is heard of this process."""
        self.say({"doing": doing})

    @property
    def ops(self) -> tuple[str, Backend, float]:
        """The ops, for `op_calls.report`."""
        return self.identifier, self.backend, self.limit_s


def misfit_by_files(variant: str, backend: Backend) -> str | None:
    """The reason that this Torch cannot load the variant; None when only an import tells.

    Importing Torch takes more than a second, its version file is a few lines of text.
    """
    built_for = COMPILED.match(variant)
    if built_for is None:
        return None
    spec = importlib.util.find_spec("torch")
    facts = torch_facts(spec.submodule_search_locations if spec else None)
    installed = facts.get("__version__", "")
    release = RELEASE.match(installed)
    if release is None:
        return None
    if built_for[1] and built_for.groups() != release.groups():
        wanted = ".".join(built_for.groups())
        return f"Torch version ({wanted}) does not match the installed one ({installed})"
    field = backend["torch_field"]
    if field and facts.get(field, "None") == "None":
        return f"the installed Torch ({installed}) is not built for {backend['name']}"
    return None


def torch_facts(folders: list[str] | None) -> dict[str, str]:
    """The assignments of Torch's version file; empty when it cannot be read."""
    for folder in folders or ():
        try:
            text = Path(folder, VERSION_FILE).read_text(encoding="utf-8")
        except OSError:
            continue
        return dict(ASSIGNMENT.findall(text))
    return {}


def has_client(backend: Backend) -> bool:
    """True when a client is installed, and loads variants of the backend."""
    return backend["in_client"] and importlib.util.find_spec("kernels") is not None


def misfit_by_client(variant: str, backend: str) -> str | None:
    """The reason that the client would not choose this variant here; None when it would.

    A client whose rules cannot be asked counts as fitting: the load then says the truth.
    """
    try:
        rules = importlib.import_module("kernels.variants")
        chosen, trace = rules.resolve_variant([rules.parse_variant(variant)], backend)
    except (ImportError, AttributeError):
        return None
    except ValueError as error:
        return str(error)
    if chosen is not None:
        return None
    reasons = [str(decision.reason) for decision in trace]
    return reasons[0] if reasons else "this Python cannot use compiled variants"


def load_with_client(folder: Path, backend: str) -> None:
    """`kernels.get_local_kernel`; pointed at the variant itself, it takes exactly that one."""
    importlib.import_module("kernels").get_local_kernel(folder, backend=backend)


def load_plainly(folder: Path, identifier: str) -> None:
    """Import the folder as the package `identifier`, as the client would."""
    spec = importlib.util.spec_from_file_location(identifier, folder / "__init__.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} has no `__init__.py`")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: its relative imports look for the package here.
    sys.modules[identifier] = module
    spec.loader.exec_module(module)


def load(task: Task, module: str) -> tuple[str, dict[str, Any]]:
    """Import one variant; the traceback's end and its facts when it fails, else nothing."""
    # A thread in C watches: it also ends a kernel that never gives up Python's lock.
    faulthandler.dump_traceback_later(LOAD_LIMIT_S, exit=True)
    task.tell(f"importing {task.identifier}")
    try:
        if has_client(task.backend):
            load_with_client(task.folder, task.backend["name"])
        else:
            importlib.import_module(module)  # the extension takes its symbols from the process
            load_plainly(task.folder, task.identifier)
    except BaseException as error:  # noqa: BLE001 - a kernel may raise anything, SystemExit included
        import traceback

        lines = traceback.format_exc().strip().splitlines()
        return "\n".join(lines[-SHOWN_LINES:]), failure_facts(error, task.backend)
    finally:
        faulthandler.cancel_dump_traceback_later()
    return "", {}


def failure_facts(error: BaseException, backend: Backend) -> dict[str, Any]:
    """The facts about this interpreter and machine that explain a failure."""
    torch = sys.modules.get("torch")
    facts: dict[str, Any] = {"torch": str(getattr(torch, "__version__", ""))}
    if isinstance(error, ModuleNotFoundError) and error.name:
        facts["missing"] = error.name
    device = getattr(torch, backend["torch_device"], None)
    # A Torch without CUDA raises AssertionError when it is asked for a device.
    asked = isinstance(error, (RuntimeError, AssertionError)) and backend["torch_field"]
    if asked and device is not None and not device.is_available():
        facts["deviceless"] = True
    return facts


def neighbour(name: str) -> Any:
    """The module of that name beside this file; the folder itself is not searched for modules."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def op_calls() -> Any:
    """`op_calls.py`; None when this Torch cannot be imported, or lacks its parts."""
    try:
        return neighbour("op_calls")
    except BaseException:  # noqa: BLE001 - importing the kernel will say why
        return None


def examine(task: Task) -> Answer:
    """Load a Torch kernel and call its ops."""
    calls = op_calls()
    if calls is None:
        failure, about = load(task, "torch")
        return ("failed", failure, about) if failure else ("loaded", "", {})
    registrations = neighbour("registrations").watch(task.folder, task.identifier)
    failure, about = load(task, "torch")
    if failure:
        return "failed", failure, about
    facts = {
        "torch": str(importlib.import_module("torch").__version__),
        "ops": calls.report(*task.ops, task.tell),
        "registrations": registrations,
    }
    return "loaded", "", facts


def examine_functions(task: Task, module: str) -> Answer:
    """Load a TVM-FFI kernel; for the CPU, call its functions, and its operators in Torch."""
    failure, about = load(task, module)
    if failure:
        return "failed", failure, about
    if not task.backend["runs_on_cpu"]:
        return "loaded", "", {}
    calls = neighbour("function_calls")
    functions = calls.report(task.folder, task.identifier, task.limit_s, task.tell)
    operators = op_calls() if "torch" in sys.modules else None
    more = operators.report(*task.ops, task.tell) if operators else {}
    return "loaded", "", {"ops": {**functions, **more}}


def answer(task: Task, variant: str, modules: str) -> Answer:
    """`loaded`, `lacking` (with the module), `misfit` or `failed`, why, and what was seen."""
    module, *needs = modules.split(",")
    if importlib.util.find_spec(module) is None:
        return "lacking", module, {}
    if reason := misfit_by_files(variant, task.backend):
        return "misfit", reason, {"files": decided_by()}
    if has_client(task.backend) and (reason := misfit_by_client(variant, task.backend["name"])):
        return "misfit", reason, {}
    if absent := [name for name in needs if importlib.util.find_spec(name) is None]:
        return "lacking", absent[0], {}
    if module == "torch":
        state, reason, facts = examine(task)
    else:
        state, reason, facts = examine_functions(task, module)
    return state, reason, {**facts, "files": decided_by()} if state == "loaded" else facts


def decided_by() -> list[str]:
    """The files to which this answer is due; Torch's version file was read without importing it."""
    spec = importlib.util.find_spec("torch")
    folders = (spec.submodule_search_locations if spec else None) or ()
    read = [str(Path(folder, VERSION_FILE)) for folder in folders]
    return list(neighbour("surroundings").surroundings(*read))


def main(say: Say, *arguments: str) -> None:
    """Answer, and say it."""
    folder, variant, about, identifier, modules, limit_s = arguments
    task = Task(Path(folder), json.loads(about), identifier, float(limit_s), say)
    state, reason, facts = answer(task, variant, modules)
    say({"state": state, "reason": reason, **facts})
