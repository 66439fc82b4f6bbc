"""Captured functions beside the original ones, for random calls within their declared domains.

    python benchmarks/captured.py fetch               liger-kernel, into benchmarks/captured_liger
    python benchmarks/captured.py compare [--save]    on a CUDA GPU with Torch and Triton

`compare` takes any project with `[[kernel.<name>.capture]]` tables that has been built. Sizes,
dtypes, strides, options, missing tensors and gradients are drawn at random. Results and gradients
of the original and of the package have to be equal but for rounding; how many have the same bits is
counted. Calls outside of the domain have to be refused. It ends with 1 if anything differs.

Neither kbuild nor the `kernels` client is needed for `compare`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import math
import random
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli
from comparison import Calls, difference, fetched, loaded
from report import save

PROJECT = Path(__file__).parent / "captured_liger"
LARGEST = 1 << 21
"""Elements of a tensor."""
UNBOUNDED = 48
"""The largest size without a bound."""
ROUNDING = 4
"""Results may be apart by this times the format's rounding of the largest number: an image for any
size adds in another order than one that Triton compiles for the call's sizes."""
AGAIN = 8
"""Where the original differs from itself, since atomics add in any order: this times as far."""
FIRST = """
import sys, time
sys.path[:0] = {paths!r}
import torch
from captured import Drawing, Function, package, tables
built = package({built!r})
function = Function(tables({folder!r})[0], built)
plan = Drawing(function, 1, (1.0, 1.0)).plan()
tensors = plan.tensors()
torch.cuda.synchronize()
began = time.perf_counter()
function.built(tensors, plan.values)
torch.cuda.synchronize()
print(1000 * (time.perf_counter() - began), "triton" in sys.modules)
"""


@dataclass(frozen=True)
class TensorPlan:
    """A tensor that can be made again."""

    shape: tuple[int, ...]
    dtype: str
    layout: str
    needs_gradient: bool
    seed: int
    kind: str = "normal"

    def make(self, *, gradients: bool) -> Any:
        """The tensor, on the GPU."""
        import torch

        generator = torch.Generator("cuda").manual_seed(self.seed)
        dtype = getattr(torch, self.dtype)
        if dtype.is_floating_point or dtype.is_complex:
            made = torch.float32 if dtype.is_floating_point else dtype
            values = torch.randn(self.shape, generator=generator, device="cuda", dtype=made)
        else:
            most = 2 if dtype is torch.bool else 8
            values = torch.randint(most, self.shape, generator=generator, device="cuda")
        values = VALUES.get(self.kind, _plain)(values)
        tensor = self._laid_out(values.to(dtype))
        return tensor.requires_grad_(gradients and self.needs_gradient)

    def _laid_out(self, tensor: Any) -> Any:
        import torch

        order = range(tensor.dim())
        if self.layout == "sliced" and tensor.dim():
            wide = torch.zeros(
                (*tensor.shape[:-1], tensor.shape[-1] + 24), dtype=tensor.dtype, device="cuda"
            )
            wide[..., 8:-16] = tensor
            return wide[..., 8:-16]
        if self.layout == "turned" and tensor.dim():
            turned = tensor.permute(*reversed(order)).contiguous()
            return turned.permute(*reversed(order))
        if self.layout == "rows" and tensor.dim() > 1:  # every other one
            spread = tensor.repeat_interleave(2, 0)
            return spread[::2]
        return tensor


def _plain(values: Any) -> Any:
    return values


CHANCES = ((0.4, 0.4), (1.0, 0.4))
"""Of a contiguous tensor, and of a size that is a multiple of 16: originals may refuse strides."""
VALUES: Mapping[str, Callable[[Any], Any]] = {
    "probabilities": lambda x: x.softmax(-1),
    "logs": lambda x: x.log_softmax(-1),
    "positive": lambda x: x.abs() + 0.1,
}
"""What tensors hold, by the word after their name in `--values`."""


@dataclass(frozen=True)
class Plan:
    """A call that can be made again."""

    tensors_: Mapping[str, TensorPlan | None]
    values: Mapping[str, Any]

    def tensors(self, *, gradients: bool = False) -> dict[str, Any]:
        """The call's tensors."""
        return {
            name: plan.make(gradients=gradients) if plan else None
            for name, plan in self.tensors_.items()
        }

    def __str__(self) -> str:
        tensors = [
            f"{name}: {p.dtype}{list(p.shape)} {p.layout}{' grad' * p.needs_gradient}"
            if p
            else f"{name}: None"
            for name, p in self.tensors_.items()
        ]
        return ", ".join((*tensors, *(f"{k}={v!r}" for k, v in self.values.items())))


@dataclass
class Function:
    """A captured function, and the original."""

    table: Mapping[str, Any]
    package: Any

    def __post_init__(self) -> None:
        self.name = self.table.get("name") or _snake(self.table["function"])
        self.op = getattr(self.package._ops.ops, self.name)  # noqa: SLF001
        self.order = [argument.name for argument in self.op.default._schema.arguments]  # noqa: SLF001

    def original(self, tensors: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        """The author's."""
        module, _, name = self.table["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        is_class = isinstance(function, type)
        signature = inspect.signature(function.forward if is_class else function)
        names = list(signature.parameters)[is_class:]
        fixed = {
            parameter: None if value["value"] == "None" else value["value"]
            for parameter, value in self.table["arguments"].items()
            if isinstance(value, dict) and value.keys() == {"value"}
        }
        known = {**fixed, **values, **tensors}
        defaults = {n: signature.parameters[n].default for n in names}
        arguments = [known.get(name, defaults[name]) for name in names]
        return (function.apply if is_class else function)(*arguments)

    def built(self, tensors: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        """The package's."""
        known = {**values, **tensors}
        return self.op(*[known[name] for name in self.order if name in known])


class Drawing:
    """Random calls of a function."""

    def __init__(self, function: Function, seed: int, chances: tuple[float, float]) -> None:
        """`chances`: of a contiguous tensor, and of a size that is a multiple of 16."""
        self.function, self.random = function, random.Random(seed)  # noqa: S311
        self.chances = chances

    def plan(self, **forced: int) -> Plan:
        """A call with these sizes, the others at random."""
        arguments = self.function.table["arguments"]
        described = {n: v for n, v in arguments.items() if isinstance(v, dict) and "shape" in v}
        batch = [self.random.randint(1, 9) for _ in range(self.random.choice((1, 2, 3)))]
        names = {d for v in described.values() for d in v["shape"] if isinstance(d, str)} - {"..."}
        sizes = {name: forced.get(name, self._size(name)) for name in sorted(names)}
        tensors: dict[str, TensorPlan | None] = {}
        for name, value in described.items():
            if value.get("optional") and self.random.random() < 0.4:
                tensors[name] = None
                continue
            self._fit(value["shape"], sizes, batch, forced)
        for name, value in described.items():
            if name in tensors:
                continue
            shape = [
                size
                for dim in value["shape"]
                for size in (batch if dim == "..." else [sizes.get(dim, dim)])
            ]
            tensors[name] = self._tensor(name, value, tuple(shape), tensors, described)
        ordered = {name: tensors[name] for name in described}
        return Plan(ordered, dict(self._values(arguments)))

    def _size(self, name: str) -> int:
        span = self.function.table.get("sizes", {}).get(name, {})
        least, most = span.get("min", 1), span.get("max", UNBOUNDED)
        size = self.random.choice((least, most, *(self.random.randint(least, most),) * 6))
        if self.random.random() < self.chances[1]:
            size = max(least, min(most, -(-size // 16) * 16))
        return size

    def _fit(
        self,
        dims: Sequence[str | int],
        sizes: dict[str, int],
        batch: list[int],
        forced: Mapping[str, int],
    ) -> None:
        """Make sizes smaller until the tensor is small enough."""
        spans = self.function.table.get("sizes", {})

        def count() -> int:
            known = (batch if dim == "..." else [sizes.get(str(dim), dim)] for dim in dims)
            return int(math.prod(int(size) for group in known for size in group))

        while count() > LARGEST:
            least = {n: spans.get(n, {}).get("min", 1) for n in sizes if n not in forced}
            large = [n for n in dims if n in least and sizes[str(n)] > least[str(n)]]
            if large:
                # Those without a bound first.
                name = str(max(large, key=lambda n: (n not in spans, sizes[str(n)])))
                sizes[name] = max(least[name], sizes[name] // 2 + self.random.randrange(2))
            elif "..." in dims and max(batch) > 1:
                batch[batch.index(max(batch))] //= 2
            else:
                return

    def _tensor(
        self,
        name: str,
        value: Mapping[str, Any],
        shape: tuple[int, ...],
        tensors: Mapping[str, TensorPlan | None],
        described: Mapping[str, Any],
    ) -> TensorPlan:
        dtypes = value["dtypes"]
        while isinstance(dtypes, str) and dtypes in described:
            other = tensors.get(dtypes)
            dtypes = [other.dtype] if other else described[dtypes]["dtypes"]
        dtype = dtypes if isinstance(dtypes, str) else self.random.choice(dtypes)
        layout = "contiguous"
        if not value.get("contiguous") and self.random.random() >= self.chances[0]:
            layout = self.random.choice(("sliced", "turned", "rows"))
        is_float = dtype.startswith(("float", "bfloat", "complex"))
        needs = is_float and self.random.random() < 0.8
        kind = self.function.table.get("kinds", {}).get(name, "normal")
        return TensorPlan(shape, dtype, layout, needs, self.random.randrange(1 << 30), kind)

    def _values(self, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in arguments.items():
            if isinstance(value, bool):
                yield name, self.random.choice((True, False))
            elif isinstance(value, float):
                yield name, self.random.choice((value, value * 1.5 + 1e-3))
            elif isinstance(value, (int, str)):
                yield name, value
            elif "choices" in value:
                yield name, self.random.choice(value["choices"])


def results(call: Callable[..., Any], plan: Plan, seed: int) -> dict[str, Any]:
    """What a call gives: `output 0`, ..., `gradient x`, ..."""
    import torch

    tensors = plan.tensors(gradients=True)
    returned = call(tensors, plan.values)
    outputs = returned if isinstance(returned, tuple) else (returned,)
    found = {f"output {at}": o.detach().clone() for at, o in enumerate(outputs) if o is not None}
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    asked = [name for name, t in tensors.items() if t is not None and t.requires_grad]
    if not roots or not asked:
        return found
    generator = torch.Generator("cuda").manual_seed(seed)
    upstream = [
        torch.randn(o.shape, generator=generator, device="cuda", dtype=torch.float32).to(o.dtype)
        for o in roots
    ]
    gradients = torch.autograd.grad(roots, [tensors[n] for n in asked], upstream, allow_unused=True)
    return found | {f"gradient {n}": g for n, g in zip(asked, gradients, strict=True)}


def compared(function: Function, args: argparse.Namespace, calls: Calls) -> dict[str, Any]:
    """Random calls of one function."""
    import torch

    counts = ("calls", "results", "same bits", "rounded", "by atomics", "refused by both")
    report: dict[str, Any] = {**dict.fromkeys(counts, 0), "differences": []}
    drawn = []
    for index in range(args.cases):
        seed = args.seed + 1000 * index
        drawn += [(seed, Drawing(function, seed, chances).plan()) for chances in CHANCES]
    for seed, plan in drawn:
        if report["calls"] >= args.cases:
            break
        try:
            expected, again = (results(function.original, plan, seed) for _ in range(2))
        except Exception as error:  # noqa: BLE001 - then the package has to refuse it as well
            wanted = f"{type(error).__name__}: {error}"
            report["refusal"] = wanted[:200]
            try:
                results(function.built, plan, seed)
            except Exception:  # noqa: BLE001
                report["refused by both"] += 1
            else:
                report["differences"].append(f"{plan}: only the original raises {wanted[:200]}")
            torch.cuda.synchronize()
            continue
        try:
            with calls.noting():
                given = results(function.built, plan, seed)
        except Exception:  # noqa: BLE001 - the other calls are compared
            line = traceback.format_exc().strip().splitlines()[-1]
            report["differences"].append(f"{plan}: {line[:400]}")
            continue
        report["calls"] += 1
        for name, wanted in expected.items():
            report["results"] += 1
            verdict = judged(given[name], wanted, again[name])
            if verdict in report:
                report[verdict] += 1
            else:
                report["differences"].append(f"{plan}: {name}: {verdict}")
    report["compiled"] = compiles(function, args.seed)
    report["outside accepted"] = list(accepted_outside(function, args.seed))
    return report


_EQUAL = ("same bits", "rounded", "by atomics")


def judged(given: Any, wanted: Any, again: Any) -> str:
    """`same bits`, `rounded`, `by atomics`, or what differs.

    Args:
        given: of the package.
        wanted: of the original.
        again: of the original, in a second call.
    """
    if given is None or wanted is None:
        return "same bits" if given is wanted else f"{given} instead of {wanted}"
    words = difference(given, wanted, None)
    if not words:
        return "same bits"
    if not difference(given, wanted, ROUNDING * _rounding(wanted.dtype)):
        return "rounded"
    largest = max(wanted.double().abs().max().item(), 1e-30)
    noise = (again.double() - wanted.double()).abs().max().item() / largest
    return "by atomics" if noise and not difference(given, wanted, AGAIN * noise) else words


def _rounding(dtype: Any) -> float:
    import torch

    return float(torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0


def compiles(function: Function, seed: int) -> str:
    """Whether `torch.compile(fullgraph=True)` gives the same; otherwise what is wrong."""
    import torch

    torch._dynamo.reset()  # noqa: SLF001
    plan = Drawing(function, seed, (1.0, 1.0)).plan()
    try:
        given = results(function.built, plan, seed)
        graph = torch.compile(lambda tensors: function.built(tensors, plan.values), fullgraph=True)
        found = results(lambda tensors, _: graph(tensors), plan, seed)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {str(error)[:300]}"
    words = {name: judged(found[name], given[name], given[name]) for name in given}
    wrong = [f"{name}: {text}" for name, text in words.items() if text not in _EQUAL]
    return "; ".join(wrong) or "ok"


def accepted_outside(function: Function, seed: int) -> Iterator[str]:
    """Calls outside of the declared domain that are not refused."""
    import torch

    for name, span in function.table.get("sizes", {}).items():
        outside = [span[key] + step for key, step in (("min", -1), ("max", 1)) if key in span]
        for size in outside:
            if size < 1:
                continue
            plan = Drawing(function, seed, (1.0, 0.0)).plan(**{name: size})
            try:
                function.built(plan.tensors(), plan.values)
                torch.cuda.synchronize()
            except RuntimeError:
                continue
            yield f"{name} = {size}"


def untuned(modules: Sequence[str]) -> None:
    """Let the originals use the first candidate; what they would choose by time is chance."""
    from triton.runtime.autotuner import Autotuner

    for module in modules:
        for kernel in vars(importlib.import_module(module)).values():
            if isinstance(kernel, Autotuner):
                kernel.configs = kernel.configs[:1]


def compare(args: argparse.Namespace) -> int:
    """All functions."""
    import torch

    sys.path.insert(0, str(args.original or args.folder))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    built = package(args.built)
    entries = tables(args.folder)
    untuned([table["function"].partition(":")[0] for table in entries])
    calls = Calls(built._ops.ops.__name__.rpartition(".")[2])  # noqa: SLF001
    facts = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": importlib.import_module("triton").__version__,
        "seed": args.seed,
    }
    reports: dict[str, Any] = {}
    began = time.monotonic()
    for table in entries:
        function = Function(table, built)
        if args.function and function.name not in args.function:
            continue
        reports[function.name] = report = compared(function, args, calls)
        faults = report["differences"] + report["outside accepted"]
        print(
            f"{function.name}: {len(faults)} faults, compile {report['compiled']},"
            f" {json.dumps({k: v for k, v in report.items() if isinstance(v, int)})},"
            f" {time.monotonic() - began:.0f} s",
            flush=True,
        )
        for words in faults[:6]:
            print(f"  {words}", flush=True)
        if args.save:
            save(args.save, {**facts, "functions": reports})
    checked = {} if args.no_opcheck else calls.checked()
    for name, words in checked.items():
        if words != "ok":
            print(f"opcheck: {name}: {words[:400]}")
    wrong = sum(len(r["differences"]) + len(r["outside accepted"]) for r in reports.values())
    wrong += sum(r["compiled"] != "ok" for r in reports.values())
    wrong += sum(words != "ok" for words in checked.values())
    names = ("calls", "results", "same bits", "rounded", "by atomics", "refused by both")
    total = {name: sum(report[name] for report in reports.values()) for name in names}
    print(f"{len(reports)} functions, {total}, {wrong} faults")
    if args.save:
        result = {"first call": first_call(args), "all": total, "functions": reports}
        save(args.save, {**facts, **result, "opcheck": checked})
    return 1 if wrong else 0


def first_call(args: argparse.Namespace) -> dict[str, Any]:
    """The first call in a new process, in milliseconds, without Triton."""
    paths = [str(Path(__file__).parent), str(args.original or args.folder)]
    text = FIRST.format(paths=paths, built=str(args.built), folder=str(args.folder))
    done = subprocess.run(  # noqa: TID251
        (sys.executable, "-c", text), capture_output=True, text=True, check=True
    )
    taken, has_triton = done.stdout.split()
    return {"ms": round(float(taken), 2), "imports Triton": has_triton == "True"}


def package(folder: str | Path) -> Any:
    """The package of a built variant."""
    return loaded(Path(folder))


def tables(folder: str | Path) -> list[dict[str, Any]]:
    """The tables of a project's captured functions, with what `compare.toml` adds to them."""
    folder = Path(folder)
    data = tomli.loads((folder / "build.toml").read_text())
    more = folder / "compare.toml"
    extra = tomli.loads(more.read_text()) if more.is_file() else {}
    found = [
        table
        for kernel in data["kernel"].values()
        for table in kernel.get("capture", ())
        if "function" in table
    ]
    return [
        {**table, **extra.get(table.get("name") or _snake(table["function"]), {})}
        for table in found
    ]


def _snake(function: str) -> str:
    name = function.partition(":")[2].removesuffix("Function")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def fetch(args: argparse.Namespace) -> int:
    """The package liger-kernel, beside `build.toml`."""
    source = fetched(args.folder)
    print(f"{sum(1 for _ in source.rglob('*.py'))} files in {source}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's documentation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("fetch", help="fetch liger-kernel")
    verb.add_argument("--folder", type=Path, default=PROJECT)
    verb.set_defaults(run=fetch)
    verb = verbs.add_parser("compare", help="compare on a GPU")
    verb.add_argument("--folder", type=Path, default=PROJECT, help="the project")
    verb.add_argument("--built", type=Path, required=True, help="folder of the variant")
    verb.add_argument("--original", type=Path, help="folder of the author's modules")
    verb.add_argument("--function", action="append", default=[], help="this one (repeatable)")
    verb.add_argument("--cases", type=int, default=24, help="calls of each function")
    verb.add_argument("--seed", type=int, default=20261123)
    verb.add_argument("--no-opcheck", action="store_true")
    verb.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    verb.set_defaults(run=compare)
    args = parser.parse_args(argv)
    result: int = args.run(args)
    return result


if __name__ == "__main__":
    sys.exit(main())
