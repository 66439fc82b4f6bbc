"""Built packages, for the tests and the scripts here."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

FIRST = """
import sys, time, torch
sys.path[:0] = {paths!r}
from built import packaged
ops = {ops}
x, w = (torch.randn(size, device="cuda", dtype=torch.{dtype}) for size in ((6, 1024), (1024,)))
torch.cuda.synchronize()
began = time.perf_counter()
ops.rms_norm(x, w)
torch.cuda.synchronize()
print(1000 * (time.perf_counter() - began), "triton" in sys.modules)
"""


def packaged(variant):
    """The built package, under a name of its own."""
    folder = Path(variant)
    spec = importlib.util.spec_from_file_location(
        "built_variant", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["built_variant"] = module
    spec.loader.exec_module(module)
    return module


def package(variable, name, folder):
    """The built variant that a variable of the environment names, imported under its name."""
    import pytest

    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"no {variable}")
    (folder / name).symlink_to(Path(given).resolve())
    sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def first_call(ops, dtype, project):
    """Milliseconds of the first `rms_norm` in a new process, and whether it imported Triton."""
    paths = [str(project), str(Path(__file__).parent)]
    code = FIRST.format(paths=paths, ops=ops, dtype=dtype)
    done = subprocess.run(  # noqa: TID251
        (sys.executable, "-c", code), capture_output=True, text=True, check=True
    )
    milliseconds, has_triton = done.stdout.split()
    return float(milliseconds), has_triton == "True"


def report(values, path):
    """Print a report of this device, and save it if there is a path."""
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    device = {"device": name, "torch": torch.__version__}
    text = json.dumps({**device, **values}, indent=1)
    print(text)
    if path:
        path.write_text(text + "\n", encoding="utf-8")
