"""Loads one variant in this process, the way a user's program would.

Usage: `python load_probe.py FOLDER VARIANT BACKEND ID MODULE`. What the installed Torch's version
file rules out is a misfit, and nothing is imported. With the `kernels` client, its own rules say
whether the variant fits this machine, and it does the loading. Without it, the folder is imported
as a package under its id. MODULE is the framework's own, without which nothing is tried. Prints one
JSON object with `state` and `reason`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

SHOWN_LINES = 6
COMPILED = re.compile(r"torch(?:(\d)(\d+)|-stable-abi\d+)-")
"""Start of a compiled variant, with the Torch release that it is for, or for the stable ABI."""
RELEASE = re.compile(r"(\d+)\.(\d+)")
ASSIGNMENT = re.compile(r"^(\w+)(?:\s*:[^=\n]+)?\s*=\s*['\"]?([^'\"\s]+)", re.MULTILINE)
FLAVOURS = {"cuda": "cuda", "rocm": "hip", "xpu": "xpu"}
"""What Torch's version file calls the device that it was built for, by backend."""


def misfit_by_files(variant: str, backend: str) -> str | None:
    """Why this interpreter's Torch cannot load the variant; None when that takes an import to say.

    Importing Torch takes more than a second, its version file is a few lines of text.
    """
    built_for = COMPILED.match(variant)
    if built_for is None:
        return None
    spec = importlib.util.find_spec("torch")
    found = torch_facts(spec.submodule_search_locations if spec else None)
    installed = found.get("__version__", "")
    release = RELEASE.match(installed)
    if release is None:
        return None
    if built_for[1] and built_for.groups() != release.groups():
        wanted = ".".join(built_for.groups())
        return f"Torch version ({wanted}) does not match the installed one ({installed})"
    flavour = FLAVOURS.get(backend)
    if flavour and found.get(flavour, "None") == "None":
        return f"the installed Torch ({installed}) is not built for {backend}"
    return None


def torch_facts(folders: list[str] | None) -> dict[str, str]:
    """The assignments of Torch's version file; empty when it cannot be read."""
    for folder in folders or ():
        try:
            text = Path(folder, "version.py").read_text(encoding="utf-8")
        except OSError:
            continue
        return dict(ASSIGNMENT.findall(text))
    return {}


def misfit_by_client(variant: str, backend: str) -> str | None:
    """Why the client would not choose this variant here; None when it would.

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
    sys.modules[identifier] = module
    spec.loader.exec_module(module)


def answer(
    folder: Path, variant: str, backend: str, identifier: str, module: str
) -> tuple[str, str]:
    """`loaded`, `lacking`, `misfit` or `failed`, and why."""
    if importlib.util.find_spec(module) is None:
        return "lacking", module
    if reason := misfit_by_files(variant, backend):
        return "misfit", reason
    client = importlib.util.find_spec("kernels") is not None
    if client and (reason := misfit_by_client(variant, backend)):
        return "misfit", reason
    try:
        if client:
            load_with_client(folder, backend)
        else:
            importlib.import_module(module)  # the extension takes its symbols from the process
            load_plainly(folder, identifier)
    except BaseException:  # noqa: BLE001 - a kernel may raise anything, SystemExit included
        import traceback

        lines = traceback.format_exc().strip().splitlines()
        return "failed", "\n".join(lines[-SHOWN_LINES:])
    return "loaded", "with the kernels client" if client else "as a package"


if __name__ == "__main__":
    state, why = answer(Path(sys.argv[1]), *sys.argv[2:])
    sys.stdout.write("\n" + json.dumps({"state": state, "reason": why}) + "\n")
