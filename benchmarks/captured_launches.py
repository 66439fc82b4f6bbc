"""Functions of liger-kernel that are captured at their launches, beside the original ones.

    python benchmarks/captured.py fetch --folder benchmarks/captured_liger_launches
    cd benchmarks/captured_liger_launches
    kbuild capture --record --no-run -- python ../captured_launches.py record
    kbuild build --variant torch-stable-abi211-cu130-x86_64-linux
    python benchmarks/captured_launches.py compare --built VARIANT     on a CUDA GPU with Triton

`record` makes calls on the CPU, whose kernels do not run. `compare` makes the same calls, and as
many with other seeds, through the package and through the original. Results and gradients have to
be equal, bit for bit. A call with another seed may need a launch that was not recorded: it has to
be refused. `compare` ends with 1 if anything differs.

Neither kbuild nor the `kernels` client is needed for `compare`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from liger import RELEASE, SEED, differences, loaded, run
from liger_cases import CASES, DTYPES, Case, Draw
from report import save

PROJECT = Path(__file__).parent / "captured_liger_launches"
RECORDED = 4
"""Calls of each module and dtype."""
HALF = ("float16", "bfloat16")
OPS = mock.MagicMock()
"""In the place of the ops that cases of `liger.py` call."""
FIRST = """
import importlib.abc, json, sys, time
sys.path.insert(0, {folder!r})
importers = []
class Imports(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "triton":
            frame = sys._getframe(1)
            while frame.f_globals.get("__name__", "").startswith(("importlib", "_frozen")):
                frame = frame.f_back
            importers.append(frame.f_globals["__name__"])
if {blocked}:
    sys.modules["triton"] = None
else:
    sys.meta_path.insert(0, Imports())
import torch
from captured_launches import PackagedDraw, cases
from liger import loaded, run
from pathlib import Path
package = loaded(Path({built!r}))
case = cases()["cross_entropy"][0](PackagedDraw(package.__name__, {seed}, "float32", "cuda"))
torch.cuda.synchronize()
began = time.perf_counter()
case.original(*case.inputs)
torch.cuda.synchronize()
taken = 1000 * (time.perf_counter() - began)
others = [name for name in sys.modules if name.partition(".")[0] == "liger_kernel"]
print(json.dumps([round(taken, 2), importers, others]))
"""


class PackagedDraw(Draw):
    """The same calls through the functions of a package."""

    def __init__(self, package: str, seed: int, dtype: str, device: str) -> None:
        super().__init__(OPS, seed, dtype, device)
        self._package = package

    def original(self, module: str, name: str) -> Callable[..., Any]:
        """The `apply` of a class of the package."""
        source = importlib.import_module(f"{self._package}.liger_kernel.ops.{module}")
        function: Callable[..., Any] = getattr(source, name).apply
        return function


def _case(inputs: Sequence[Any], call: Callable[..., Any], **close: float) -> Case:
    return Case(
        inputs, call, call, {name.replace("_", " "): value for name, value in close.items()}
    )


def fused_linear_cross_entropy(draw: Draw) -> Case:
    """Reductions, biases, and what is returned beside the loss."""
    rows, hidden, columns = draw.between(8, 60), draw.one_of(64, 128), draw.width()
    reduction, smoothing, softcap, extras = draw.one_of(
        ("mean", 0.0, None, False), ("sum", 0.1, 30.0, True), ("none", 0.0, None, False)
    )
    bias = draw.one_of([], [draw.tensor(columns)])
    function = draw.original("fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction")

    def call(x: Any, weight: Any, target: Any, bias: Any = None) -> Any:
        z = 1e-4 if extras else 0.0
        more = (-100, z, smoothing, reduction, softcap, extras, None, False, extras, extras)
        return function(x, weight, target, bias, None, *more)

    weight = draw.tensor(columns, hidden, scale=0.2)
    return _case([draw.tensor(rows, hidden), weight, draw.labels(columns, rows), *bias], call)


def fused_linear_jsd(draw: Draw) -> Case:
    """Betas, temperatures, with and without labels."""
    rows, hidden, columns = draw.between(8, 60), draw.one_of(64, 128), draw.width()
    beta, temperature = draw.one_of((0.0, 1.0), (0.5, 2.0), (1.0, 1.0))
    labels = draw.one_of([], [draw.labels(columns, rows)])
    function = draw.original("fused_linear_jsd", "LigerFusedLinearJSDFunction")
    inputs = [draw.tensor(rows, hidden), draw.tensor(columns, hidden, scale=0.2)]
    inputs += [draw.tensor(rows, 96, grad=False), draw.tensor(columns, 96, grad=False, scale=0.2)]

    def call(x: Any, weight: Any, teacher: Any, teacher_weight: Any, labels: Any = None) -> Any:
        more = (beta, -100, temperature, None, "nvidia-triton")
        return function(x, weight, teacher, teacher_weight, labels, *more)

    return _case([*inputs, *labels], call)


def fused_linear_kl_div(draw: Draw) -> Case:
    """Reductions, temperatures, with and without labels."""
    rows, hidden, columns = draw.between(8, 60), draw.one_of(64, 128), draw.width()
    reduction, temperature = draw.one_of(("batchmean", 1.0), ("mean", 2.0), ("sum", 1.0))
    labels = draw.one_of([], [draw.labels(columns, rows)])
    function = draw.original("fused_linear_kl_div", "LigerFusedLinearKLDivFunction")
    weight = draw.tensor(columns, hidden, scale=0.2)

    def call(x: Any, weight: Any, target: Any, labels: Any = None) -> Any:
        return function(x, weight, target, labels, reduction, -100, temperature)

    inputs = [draw.tensor(rows, hidden), weight, draw.probabilities(rows, columns)]
    return _case([*inputs, *labels], call)


def fused_ce_tvd(draw: Draw) -> Case:
    """One or more blocks in a row."""
    rows = draw.between(1, 100)
    columns = draw.one_of(draw.width(), draw.between(16400, 20000, 16))
    function = draw.original("fused_ce_tvd", "LigerFusedCETVDFunction")
    logits = draw.tensor(rows, columns), draw.tensor(rows, columns, grad=False)
    return _case([*logits, draw.labels(columns, rows)], function)


def fused_moe(draw: Draw) -> Case:
    """Numbers of experts, and of those that a token has."""
    experts, chosen, hidden, inner = draw.one_of((4, 2, 64, 64), (6, 1, 128, 64))
    tokens = draw.between(4, 200)
    weights = draw.torch.rand(
        (tokens, chosen), generator=draw.torch.Generator().manual_seed(tokens)
    )
    function = draw.original("fused_moe", "LigerFusedMoEFunction")
    inputs = [
        draw.tensor(tokens, hidden),
        draw.tensor(experts, 2 * inner, hidden, scale=0.1),
        draw.tensor(experts, hidden, inner, scale=0.1),
        draw.integers(experts, tokens, chosen).to(draw.torch.int32),
        weights.to(draw.dtype).to(draw.device).requires_grad_(),
    ]
    return _case(inputs, function)


def mlp(draw: Draw) -> Case:
    """Kernels that take descriptors."""
    size, inner = draw.one_of((64, 128), (128, 256))
    gate, down = draw.one_of((1.0, 1.0), (0.5, 2.0))
    function = draw.original("mlp", "LigerMLPFunction")
    inputs = [
        draw.tensor(draw.between(1, 3), draw.between(1, 200), size),
        draw.tensor(inner, size, scale=0.1),
        draw.tensor(inner, size, scale=0.1),
        draw.tensor(size, inner, scale=0.1),
    ]
    return _case(inputs, lambda *inputs: function(*inputs, gate, down))


def tiled_mlp(draw: Draw) -> Case:
    """Calls back into Python, which calls another of the functions."""
    size, inner, shards = 64, 128, draw.one_of(1, 3, 4)
    function = draw.original("tiled_mlp", "LigerTiledMLPFunction")
    product = draw.original("swiglu", "LigerSiLUMulFunction")
    shapes = ((inner, size), (inner, size), (size, inner))
    weights = [draw.tensor(*shape, grad=False, scale=0.1) for shape in shapes]

    def layer(weights: Any, x: Any) -> Any:
        gate, up, down = weights
        return product(x @ gate.T, x @ up.T) @ down.T

    x = draw.tensor(draw.between(1, 3), draw.between(4, 100), size)
    return _case([x], lambda x: function(layer, weights, x, shards))


def grpo_loss(draw: Draw) -> Case:
    """Kinds of losses; lengths are constants of the kernels."""
    kind, level, beta, has_old = draw.one_of(
        ("grpo", "token", 0.0, False),
        ("grpo", "sequence", 0.04, True),
        ("cispo", "token", 0.04, True),
        ("sapo", "token", 0.0, True),
    )
    batch, (length, columns) = draw.between(1, 6), draw.one_of((12, 1000), (7, 3000))
    function = draw.original("grpo_loss", "GrpoLossFunction")
    ids, mask = draw.integers(columns, batch, length), draw.integers(2, batch, length)
    mask[:, 0] = 1
    float32 = draw.torch.float32
    old, reference = (draw.tensor(batch, length, dtype=float32, grad=False) - 7.0 for _ in range(2))
    advantages = draw.tensor(batch, dtype=float32, grad=False)

    def call(logits: Any) -> Any:
        tensors = (old if has_old else None, reference if beta else None, ids, advantages, mask)
        return function(logits, *tensors, 0.9, beta, 0.2, 0.2, False, kind, None, True, level)

    return _case([draw.tensor(batch, length + 1, columns)], call)


def cases() -> Mapping[str, tuple[Callable[[Draw], Case], Sequence[str]]]:
    """Module of liger-kernel -> how a call is drawn, and for which dtypes."""
    known = (
        "cross_entropy",
        "kl_div",
        "tvd",
        "jsd",
        "llama4_rope",
        "multi_token_attention",
        "vocab_parallel_cross_entropy",
    )
    return {
        **{name: CASES[name] for name in known},
        "fused_linear_cross_entropy": (fused_linear_cross_entropy, DTYPES),
        "fused_linear_jsd": (fused_linear_jsd, DTYPES),
        "fused_linear_kl_div": (fused_linear_kl_div, DTYPES),
        "fused_ce_tvd": (fused_ce_tvd, DTYPES),
        "fused_moe": (fused_moe, ("bfloat16", "float32")),
        "mlp": (mlp, HALF),
        "tiled_mlp": (tiled_mlp, DTYPES),
        "grpo_loss": (grpo_loss, DTYPES),
    }


def seeds(first: int, count: int) -> list[tuple[int, float]]:
    """Seeds of calls, each with the gradient of a loss."""
    return [(SEED + 1000 * index, (1.0, 0.75)[index % 2]) for index in range(first, first + count)]


def record(args: argparse.Namespace) -> int:
    """Make the calls on the CPU. What kernels would have written is 1."""
    import torch

    sys.path.insert(0, str(args.original))
    for module in args.module or cases():
        drawn, dtypes = cases()[module]
        on_gpu = property(lambda _, answer=module == "mlp": answer)
        for dtype in dtypes:
            for seed, scale in seeds(0, args.cases):
                case = drawn(Draw(OPS, seed, dtype, "cpu"))
                with (
                    mock.patch("torch.empty", torch.ones),
                    mock.patch("torch.Tensor.is_cuda", on_gpu),
                ):
                    run(case.original, case, scale)
        print(module, flush=True)
    return 0


def untuned() -> None:
    """Let the originals use the first candidate, which is recorded without a GPU."""
    from triton.runtime.autotuner import Autotuner

    for name in ("fused_moe_kernels", "mlp"):
        for kernel in vars(importlib.import_module(f"liger_kernel.ops.{name}")).values():
            if isinstance(kernel, Autotuner):
                kernel.configs = kernel.configs[:1]


def compare(args: argparse.Namespace) -> int:
    """All modules, on the GPU."""
    import torch

    sys.path.insert(0, str(args.original))
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    package = loaded(args.built).__name__
    untuned()
    modules = {}
    for module in args.module or cases():
        modules[module] = {
            "recorded": compared(module, package, seeds(0, args.cases)),
            "other seeds": compared(module, package, seeds(args.cases, args.cases)),
        }
        print(module, flush=True)
        for kind, report in modules[module].items():
            numbers = {k: v for k, v in report.items() if isinstance(v, int)}
            print(f"  {kind}: {json.dumps(numbers)}")
            for words in report["faults"]:
                print(f"    {words}", flush=True)
    groups = [(kind, report) for parts in modules.values() for kind, report in parts.items()]
    total = {
        key: sum(report[key] for _, report in groups) for key in ("calls", "results", "refused")
    }
    wrong = sum(len(report["faults"]) for _, report in groups)
    wrong += sum(report["refused"] for kind, report in groups if kind == "recorded")
    message = next((report["message"] for _, report in groups if report["message"]), "")
    processes = {
        "without Triton": process(args, blocked=True),
        "with Triton installed": process(args, blocked=False),
    }
    print(f"{len(modules)} modules, {total}, {wrong} faults\n{message}\n{processes}")
    if args.save:
        result = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": importlib.import_module("triton").__version__,
            "release": RELEASE,
            "total": {**total, "faults": wrong},
            "first call": processes,
            "refusal": message,
            "modules": modules,
        }
        save("captured_liger_launches", result)
    return 1 if wrong else 0


def compared(module: str, package: str, calls: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """Calls of one module: how many are made, what differs, and what is refused."""
    import torch

    drawn, dtypes = cases()[module]
    report: dict[str, Any] = {
        "calls": 0,
        "results": 0,
        "refused": 0,
        "message": "",
        "faults": [],
    }
    for dtype in dtypes:
        for seed, scale in calls:
            label = f"{module} {dtype} seed {seed}"
            try:
                case = drawn(Draw(OPS, seed, dtype, "cuda"))
                expected = run(case.original, case, scale)
                packaged = drawn(PackagedDraw(package, seed, dtype, "cuda"))
                given = run(packaged.original, packaged, scale)
                torch.cuda.synchronize()
                report["calls"] += 1
                report["results"] += len(expected)
                report["faults"] += [
                    f"{label}: {words}" for words in differences(given, expected, case.close)
                ]
            except Exception as error:  # noqa: BLE001 - the other calls are compared
                if type(error).__name__ == "NotCompiledError":
                    report["refused"] += 1
                    report["message"] = report["message"] or str(error)
                    continue
                lines = traceback.format_exc().strip().splitlines()[-6:]
                report["faults"].append(f"{label}: {type(error).__name__}: {' | '.join(lines)}")
    return report


def process(args: argparse.Namespace, *, blocked: bool) -> dict[str, Any]:
    """The first call in a new process: milliseconds, and who imports Triton or the original."""
    text = FIRST.format(
        folder=str(Path(__file__).parent), built=str(args.built), seed=SEED, blocked=blocked
    )
    began = time.perf_counter()
    done = subprocess.run(  # noqa: TID251
        (sys.executable, "-c", text), capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"error": done.stderr[-2000:]}
    taken, importers, others = json.loads(done.stdout.splitlines()[-1])
    whole = round(time.perf_counter() - began, 1)
    return {"ms": taken, "Triton imported by": importers, "original": others, "process s": whole}


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's documentation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, function in (("record", record), ("compare", compare)):
        verb = verbs.add_parser(name, help=(function.__doc__ or "").partition(".")[0])
        verb.add_argument(
            "--original", type=Path, default=PROJECT, help="folder that has `liger_kernel`"
        )
        verb.add_argument(
            "--module", action="append", choices=cases(), help="this module alone (repeatable)"
        )
        verb.add_argument("--cases", type=int, default=RECORDED, help="of each module and dtype")
        verb.set_defaults(run=function)
    verb.add_argument("--built", type=Path, required=True, help="folder of the variant")
    verb.add_argument("--save", action="store_true", help="write the results")
    args = parser.parse_args(argv)
    result: int = args.run(args)
    return result


if __name__ == "__main__":
    sys.exit(main())
