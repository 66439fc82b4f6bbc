"""Fetches the PyPI package liger-kernel, loads built variants, and compares tensors and ops."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "liger_kernel"
RELEASE = "0.8.5"
DIGEST = "60789cd576af073ab9b192b570d2597fd0cdad489cd62fb44fb16256d43754c9"


def fetched(project: Path) -> Path:
    """The package's files in a project."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.txt"
        wanted.write_text(f"liger-kernel=={RELEASE} --hash=sha256:{DIGEST}\n")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        subprocess.run([*command, "-d", folder, "-r", wanted], check=True)  # noqa: TID251
        (wheel,) = Path(folder).glob("*.whl")
        shutil.rmtree(project / PACKAGE, ignore_errors=True)
        with zipfile.ZipFile(wheel) as files:
            own = [name for name in files.namelist() if name.startswith(f"{PACKAGE}/")]
            files.extractall(project, own)
    return project / PACKAGE


def loaded(variant: Path) -> ModuleType:
    """The package of a built variant."""
    name = "liger_built"
    spec = importlib.util.spec_from_file_location(
        name, variant / "__init__.py", submodule_search_locations=[str(variant)]
    )
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def difference(given: Any, wanted: Any, tolerance: float | None) -> str:
    """How two tensors differ; nothing when they are as equal as they should be."""
    import torch

    facts = [(tuple(one.shape), one.dtype) for one in (given, wanted)]
    if facts[0] != facts[1]:
        return f"{facts[0]} instead of {facts[1]}"
    given, wanted = given.contiguous(), wanted.contiguous()
    if (
        torch.equal(given.view(torch.uint8), wanted.view(torch.uint8))
        if given.dim()
        else same_bits(given, wanted)
    ):
        return ""
    if torch.equal(torch.isnan(given), torch.isnan(wanted)):
        given, wanted = given.nan_to_num(), wanted.nan_to_num()
    apart = (given.double() - wanted.double()).abs()
    largest = wanted.double().abs().max().item()
    relative = apart.max().item() / max(largest, 1e-30)
    if tolerance is not None and relative <= tolerance:
        return ""
    unequal = int((apart != 0).sum())
    words = f"{unequal} of {given.numel()} differ, by up to {apart.max().item():.3g}"
    return f"{words} ({relative:.2g} of the largest)"


def same_bits(given: Any, wanted: Any) -> bool:
    """Of two tensors without dimensions."""
    import torch

    return torch.equal(given.view(1).view(torch.uint8), wanted.view(1).view(torch.uint8))


class Calls:
    """Notes a call of each op that is called."""

    def __init__(self, namespace: str) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        calls: dict[str, tuple[Any, tuple[Any, ...]]] = {}

        class Noting(TorchDispatchMode):
            def __torch_dispatch__(self, op, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
                del types
                if op.namespace == namespace:
                    calls.setdefault(str(op), (op, tuple(copied(one) for one in args)))
                return op(*args, **(kwargs or {}))

        self.calls, self.noting = calls, Noting

    def checked(self) -> dict[str, str]:
        """What `opcheck` says of each: `ok`, or the fault."""
        import torch

        said = {}
        for name, (op, args) in self.calls.items():
            has_gradient = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "Autograd")  # noqa: SLF001
            given = tuple(copied(one, has_gradient=has_gradient) for one in args)
            try:
                torch.library.opcheck(op, given, **_noise(op, args))
                said[name] = "ok"
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
                said[name] = f"{type(error).__name__}: {error}"
        return said


def _noise(op: Any, args: tuple[Any, ...]) -> dict[str, float]:
    """Tolerances for an op that gives something else when it is called again, as atomics do."""
    import torch

    def results() -> list[Any]:
        returned = op(*(copied(value) for value in args))
        found = returned if isinstance(returned, (tuple, list)) else [returned]
        return [value for value in found if isinstance(value, torch.Tensor)]

    first, *others = [results() for _ in range(4)]
    apart = [
        (a.double() - b.double()).abs().max().item() / max(b.double().abs().max().item(), 1e-30)
        for other in others
        for a, b in zip(other, first, strict=True)
        if a.numel() and a.is_floating_point() and not torch.equal(a, b)
    ]
    if not apart:
        return {}
    largest = max(v.abs().max().item() for v in first if v.numel() and v.is_floating_point())
    return {"rtol": 10 * max(apart), "atol": 10 * max(apart) * largest}


def copied(value: Any, *, has_gradient: bool = False) -> Any:
    """An argument that nobody else changes."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(has_gradient and value.is_floating_point())
