"""Kernels of the PyPI package liger-kernel, its files as they are, beside the original.

    python benchmarks/liger.py fetch              the package, by pip; its digest is checked
    python benchmarks/liger.py build              the variant that is compared
    python benchmarks/liger.py shapes             without a GPU: fake kernels
    python benchmarks/liger.py compare [--save]   on a CUDA GPU with Torch and Triton

`compare` draws calls at random. Results and gradients of both must be equal bit for bit, those that
atomics add up within a tolerance that the case states. `torch.compile(fullgraph=True)` of each op
must give what the op gives, as near as Torch's own arithmetic around it allows, and
`torch.library.opcheck` must find nothing in any op that was called. It ends with 1 if anything
differs. `shapes` compares what the fake kernels promise with the original's own host code, whose
kernels do nothing there.

Neither kbuild nor the `kernels` client is needed for `compare`: `--built` is the folder of a
variant, `--original` the one that has the package `liger_kernel` in it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from liger_cases import CASES, Case, Draw
from report import save

PROJECT = Path(__file__).parent / "liger"
PACKAGE = "liger_kernel"
RELEASE = "0.8.5"
DIGEST = "60789cd576af073ab9b192b570d2597fd0cdad489cd62fb44fb16256d43754c9"
VARIANT = "torch-stable-abi211-cu130-x86_64-linux"
SEED, DRAWN = 20261122, 12
COUNTED = ("dyt", "layer_norm", "rms_norm", "fused_add_rms_norm", "poly_norm", "modulated_rms_norm")
"""Modules whose backward ops ask for the number of multiprocessors, which no CPU has."""
Results = Mapping[str, Any]


def fetch(args: argparse.Namespace) -> int:
    """The package's wheel, its files beside build.toml."""
    del args
    folder = fetched(PROJECT)
    print(f"liger-kernel {RELEASE}: {sum(1 for _ in folder.rglob('*.py'))} files in {folder}")
    return 0


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


def build(args: argparse.Namespace) -> int:
    """The variant for `compare`."""
    command = [sys.executable, "-m", "kbuild", "build", "--variant", VARIANT]
    for arch in args.arch:
        command += ["--arch", arch]
    return subprocess.run([*command, str(PROJECT)], check=False).returncode  # noqa: TID251


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


def run(
    function: Callable[..., Any], case: Case, scale: float = 1.0, *, gradients: bool = True
) -> Results:
    """What a function gives for a case: `output 0`, ..., `gradient 0`, ...

    Args:
        function: one side of the case.
        case: gives the inputs.
        scale: the gradient of a loss. Some of the original's ops do something else where it is 1.
        gradients: whether they are wanted.
    """
    import torch

    inputs = [one.detach().clone().requires_grad_(one.requires_grad) for one in case.inputs]
    given = function(*inputs)
    outputs = [one for one in (given if isinstance(given, tuple) else (given,)) if one is not None]
    asked = [index for index, one in enumerate(inputs) if one.requires_grad]
    found = {f"output {index}": one.detach().clone() for index, one in enumerate(outputs)}
    if not gradients:
        return found
    roots = [one for one in outputs if one.requires_grad]
    grads = torch.autograd.grad(
        roots,
        [inputs[i] for i in asked],
        [upstream(one, scale) for one in roots],
        allow_unused=True,
    )
    return found | {f"gradient {index}": grad for index, grad in zip(asked, grads, strict=True)}


def upstream(output: Any, scale: float) -> Any:
    """A gradient for an output, the same for the same shape and dtype."""
    import torch

    if output.dim() == 0:
        return torch.full_like(output, scale)
    if output.is_meta or torch._subclasses.fake_tensor.is_fake(output):  # noqa: SLF001
        return torch.empty_like(output)
    generator = torch.Generator().manual_seed(output.numel())
    # As dense as the output: the original takes no other gradients for some ops.
    return torch.randn(output.shape, generator=generator).to(output)


def differences(found: Results, expected: Results, close: Mapping[str, float]) -> Iterator[str]:
    """What is not equal, in words."""
    for name, wanted in expected.items():
        given = found[name]
        if (given is None) != (wanted is None):
            yield f"{name}: {'nothing' if given is None else 'something'}"
        elif wanted is not None:
            words = difference(given, wanted, close.get(name))
            if words:
                yield f"{name}: {words}"


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


def compiled_close(dtype: Any) -> float:
    """How far Torch's own fused arithmetic around the ops may be from its eager one."""
    import torch

    return {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]


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


def compare(args: argparse.Namespace) -> int:
    """All modules, on the GPU."""
    import torch

    sys.path.insert(0, str(args.original))
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    built = loaded(args.built)
    untuned()
    calls = Calls(built._ops.ops.__name__.rpartition(".")[2])  # noqa: SLF001
    modules = {}
    for module in args.module or CASES:
        modules[module] = compared(module, built, args, calls)
        print(
            module,
            json.dumps({k: v for k, v in modules[module].items() if k != "differences"}),
            flush=True,
        )
        for words in modules[module]["differences"]:
            print(f"  {words}", flush=True)
    checked = calls.checked() if not args.no_opcheck else {}
    faults = {name: words for name, words in checked.items() if words != "ok"}
    for name, words in faults.items():
        print(f"opcheck: {name}: {words}")
    wrong = sum(len(one["differences"]) for one in modules.values()) + len(faults)
    right = sum(not one["differences"] for one in modules.values())
    print(
        f"{right} of {len(modules)} modules equal; "
        f"{len(checked) - len(faults)} of {len(checked)} ops pass opcheck"
    )
    if args.save:
        result = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": importlib.import_module("triton").__version__,
            "release": RELEASE,
            "seed": args.seed,
            "modules": modules,
            "opcheck": checked,
        }
        save("liger", result)
    return 1 if wrong else 0


def untuned() -> None:
    """Let the original use the candidate that is built; what it would choose by time is chance."""
    from triton.runtime.autotuner import Autotuner

    for name in ("dyt",):
        module = importlib.import_module(f"liger_kernel.ops.{name}")
        for kernel in vars(module).values():
            if isinstance(kernel, Autotuner):
                kernel.configs = kernel.configs[:1]


def compared(
    module: str, built: ModuleType, args: argparse.Namespace, calls: Calls
) -> dict[str, Any]:
    """One module: how many calls are equal, and what differs."""
    import torch

    torch._dynamo.reset()  # noqa: SLF001
    drawn, dtypes = CASES[module]
    found: dict[str, Any] = {
        "cases": 0,
        "results": 0,
        "compiled": 0,
        "compiled equal": 0,
        "differences": [],
    }
    for dtype in dtypes:
        for index in range(args.cases):
            seed = args.seed + 1000 * index
            label = f"{module} {dtype} seed {seed}"
            try:
                draw = Draw(built, seed, dtype, "cuda")
                case = drawn(draw)
                scale = (1.0, 0.75)[index % 2]
                expected = run(case.original, case, scale)
                with calls.noting():
                    given = run(case.built, case, scale)
                found["cases"] += 1
                found["results"] += len(expected)
                said = list(differences(given, expected, case.close))
                if not said and index < args.compiled:
                    said = list(compiled(draw, case, scale, given, found))
                found["differences"] += [f"{label}: {words}" for words in said]
            except Exception as error:  # noqa: BLE001 - the other cases are compared
                lines = traceback.format_exc().strip().splitlines()
                found["differences"].append(
                    f"{label}: {type(error).__name__}: {error} | {' | '.join(lines[-6:])}"
                )
    return found


def compiled(
    draw: Draw, case: Case, scale: float, given: Results, found: dict[str, Any]
) -> Iterator[str]:
    """The same through `torch.compile`."""
    import torch

    results = run(torch.compile(case.built, fullgraph=True), case, scale)
    found["compiled"] += 1
    close = dict.fromkeys(given, compiled_close(draw.dtype))
    found["compiled equal"] += not list(differences(results, given, {}))
    yield from (
        f"compiled: {words}" for words in differences(results, given, close | dict(case.close))
    )


def shapes(args: argparse.Namespace) -> int:
    """What fake kernels promise, and the shapes and dtypes that the original has."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    sys.path.insert(0, str(args.original))
    importlib.import_module("torch._dynamo")  # it would take what follows for Triton
    no_triton()
    built = loaded(args.built)
    wrong = 0
    for module in args.module or CASES:
        drawn, dtypes = CASES[module]
        count = 0
        for dtype in dtypes:
            for index in range(args.cases):
                seed = args.seed + 1000 * index
                case = drawn(Draw(built, seed, dtype, "cpu"))
                gradients = module not in COUNTED
                expected = run(case.original, case, gradients=gradients)
                with FakeTensorMode() as mode:
                    given = run(case.built, faked(mode, case), gradients=gradients)
                said = [
                    f"{name}: {fact(given[name])} instead of {fact(one)}"
                    for name, one in expected.items()
                    if fact(given[name]) != fact(one)
                ]
                count += 1
                wrong += len(said)
                for words in said:
                    print(f"{module} {dtype} seed {seed}: {words}")
        print(f"{module}: {count} cases")
    return 1 if wrong else 0


def fact(tensor: Any) -> Any:
    """What is known of a tensor without its values."""
    return tensor is not None and (tuple(tensor.shape), str(tensor.dtype))


def no_triton() -> None:
    """A Triton whose kernels do nothing, so that the original's host code runs anywhere."""
    from unittest.mock import MagicMock

    class Constant:
        def __init__(self, value: Any) -> None:
            self.value = value

    class Kernel:
        def __getitem__(self, grid: Any) -> Callable[..., None]:
            return lambda *args, **kwargs: None  # noqa: ARG005

    triton = MagicMock(__version__="3.6.0", __spec__=None)
    triton.jit = lambda function: Kernel()  # noqa: ARG005
    triton.autotune = triton.heuristics = lambda *args, **kwargs: lambda kernel: kernel  # noqa: ARG005
    triton.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
    triton.cdiv = lambda a, b: -(-a // b)
    triton.language.constexpr = Constant
    names = (
        "",
        ".language",
        ".language.extra",
        ".language.extra.libdevice",
        ".language.extra.cuda.libdevice",
    )
    for name in (
        *names,
        ".language.math",
        ".language.extra.cuda",
        ".runtime",
        ".runtime.autotuner",
    ):
        module = triton
        for part in name.split(".")[1:]:
            module = getattr(module, part)
        sys.modules[f"triton{name}"] = module


def faked(mode: Any, case: Case) -> Case:
    """The same with fake tensors, on the CPU: Torch without CUDA has no gradients of others."""
    return dataclasses.replace(case, inputs=[mode.from_tensor(one) for one in case.inputs])


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's documentation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("fetch", help="fetch the package").set_defaults(run=fetch)
    verb = verbs.add_parser("build", help="build the variant")
    verb.add_argument(
        "--arch", action="append", default=[], help="compile for this arch alone (repeatable)"
    )
    verb.set_defaults(run=build)
    for name, function in (("shapes", shapes), ("compare", compare)):
        verb = verbs.add_parser(name, help=(function.__doc__ or "").strip().rstrip("."))
        verb.add_argument(
            "--built", type=Path, default=PROJECT / "build" / VARIANT, help="folder of the variant"
        )
        verb.add_argument(
            "--original", type=Path, default=PROJECT, help="folder that has `liger_kernel`"
        )
        verb.add_argument(
            "--module", action="append", choices=CASES, help="this module alone (repeatable)"
        )
        verb.add_argument("--cases", type=int, default=DRAWN, help="calls of each module and dtype")
        verb.add_argument("--seed", type=int, default=SEED)
        verb.set_defaults(run=function)
    verb.add_argument(
        "--compiled", type=int, default=1, help="how many of them go through torch.compile as well"
    )
    verb.add_argument("--no-opcheck", action="store_true")
    verb.add_argument("--save", action="store_true", help="write benchmarks/results/liger.json")
    args = parser.parse_args(argv)
    result: int = args.run(args)
    return result


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
