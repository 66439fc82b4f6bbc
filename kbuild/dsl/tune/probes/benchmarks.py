"""Measures a project's benchmarks: classes in the format of the `kernels` client.

The kernel, another build and the reference take turns in one process, see `race`.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from kbuild.dsl.tune.probes import devices
from kbuild.dsl.tune.probes.processes import device_in_use, pause_watchdog, send_message
from kbuild.dsl.tune.probes.race import Race, RaceRules
from kbuild.dsl.tune.probes.serve import first_words, load, tell_waiting

torch: Any = importlib.import_module("torch")

KERNEL, REFERENCE = "kernel", "reference"
_MEASURE, _VERIFY, _SETUP = "benchmark_", "verify_", "setup_"
_TOLERANCE, _RELATIVE = 1e-2, 1e-5
"""Absolute and relative tolerance, as in the client; dtypes with few bits get a larger relative
one."""
_TORCH_NAMESPACES = {"aten", "prim", "prims", "profiler", "quantized", "inductor"}
_COPIED = 256 << 20
"""Bytes that are copied to measure the bandwidth."""
_MATRIX = {"cpu": 1024, "cuda": 8192}
_CALLS, _SLICE_US = 5, 1e6
_RULES: Mapping[str, float] = {"hopeless": math.inf, "beaten": math.inf, "precision": 0.0}
"""Rules of a race that drops nobody and runs to the end."""
Job = Mapping[str, Any]


def measure(settings: Mapping[str, Any], jobs: Iterable[Job]) -> None:
    """Load the variants that the settings name, and perform jobs as they arrive."""
    try:
        sys.path.insert(0, settings["root"])
        bench = BenchmarkProcess(settings)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything
        send_message({"unloadable": first_words(error)})
        return
    pause_watchdog()
    for job in jobs:
        try:
            with device_in_use(bench.lock_name, partial(tell_waiting, job)):
                send_message({"doing": job["id"]})
                answer = getattr(bench, job["do"])(job)
        except Exception as error:  # noqa: BLE001 - benchmarks are the project's
            answer = {"error": first_words(error)}
        send_message({"done": job["id"]} | answer)
        pause_watchdog()


@dataclass
class BenchmarkProcess:
    """Some builds of a kernel, loaded for one device."""

    settings: Mapping[str, Any]
    stopwatch: Any = field(init=False)
    lock_name: str = field(init=False)
    kernels: dict[str, ModuleType] = field(init=False)
    """Side -> the kernel's module."""

    def __post_init__(self) -> None:
        device = self.settings["device"]
        if device != "cpu":
            torch.cuda.set_device(device)
        self.stopwatch = devices.stopwatch_for(device, cold=True)
        self.lock_name = devices.lock_name(device)
        self.kernels = {}
        for side in self.settings["sides"]:
            name = f"_kbuild_benchmark_{side['name']}"
            load(Path(side["variant"]), name)
            self.kernels[side["name"]] = sys.modules[name]

    def list(self, job: Job) -> dict[str, Any]:
        """List the workloads of the scripts, and facts about the machine."""
        workloads = [
            {"script": script, "class": name, "workload": workload}
            for script in job["scripts"]
            for name, owner in _benchmark_classes(script)
            for workload in _workloads(owner)
        ]
        return {"workloads": workloads, "machine": self._machine()}

    def race(self, job: Job) -> dict[str, Any]:
        """Measure a workload's sides: times, bytes per call, and differences from the reference."""
        owner = dict(_benchmark_classes(job["script"]))[job["class"]]
        calls: dict[str, Callable[[], Any]] = {}
        facts: dict[str, Any] = {"wrong": {}}
        for side, kernel in self.kernels.items():
            try:
                instance = self._set_up(owner, job["workload"], kernel)
                call = getattr(instance, _MEASURE + job["workload"])
                moved, tensors = _traffic(call)
                devices.synchronize(self.settings["device"])
                verify = getattr(instance, _VERIFY + job["workload"], None)
                problem = "" if verify is None else self._problem(instance.out, verify())
            except Exception as error:
                if side == KERNEL:
                    raise
                facts["wrong"][side] = first_words(error)  # it may lack a newer op
                continue
            if problem:
                facts["wrong"][side] = problem
            calls[side] = call
            if verify is not None:
                # All sides have the same reference, so it takes part once.
                calls.setdefault(REFERENCE, verify)
            if "bytes" not in facts:
                facts |= self._work(instance, moved, tensors)
        names = list(calls)
        runners = self._race([calls[name] for name in names])
        facts["samples_us"] = {name: runners[at].samples for at, name in enumerate(names)}
        return facts

    def copy(self, _: Job) -> dict[str, Any]:
        """Measure a copy that fits in no cache: bytes per second, read and written."""
        # Elements are float32, of 4 bytes.
        source = torch.ones(_COPIED // 4, device=self.settings["device"])
        target = torch.empty_like(source)
        return {"rate": 2 * _COPIED / self._seconds(lambda: target.copy_(source))}

    def matmul(self, job: Job) -> dict[str, Any]:
        """Measure a product of large square matrices: floating-point operations per second."""
        device = self.settings["device"]
        n = _MATRIX[device.partition(":")[0]]
        dtype = getattr(torch, job["dtype"])
        left, right = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(left)
        return {"rate": 2 * n**3 / self._seconds(lambda: torch.mm(left, right, out=out))}

    def _seconds(self, call: Callable[[], object]) -> float:
        runner = self._race([call], {"calls_per_turn": _CALLS, "slice_us": _SLICE_US, "rounds": 3})[
            0
        ]
        return float(runner.median / 1e6)

    def _race(
        self, calls: Sequence[Callable[[], object]], rules: Mapping[str, float] | None = None
    ) -> Mapping[int, Any]:
        current = [0]

        def prepare(candidate: int) -> None:
            send_message({"measuring": candidate})
            current[0] = candidate

        def call() -> None:
            calls[current[0]]()

        every = {**_RULES, **self.stopwatch.rules, **(rules or {})}
        race = Race(self.stopwatch, prepare, call, time.monotonic, RaceRules(**every))
        return race.perform(range(len(calls)), keep=0)

    def _set_up(self, owner: type[Any], workload: str, kernel: ModuleType) -> Any:
        instance = owner()
        instance.kernel, instance.device = kernel, self.settings["device"]
        if instance.seed is not None:
            torch.manual_seed(instance.seed)  # of every device
            random.seed(instance.seed)
        getattr(instance, _SETUP + workload, instance.setup)()
        return instance

    def _problem(self, actual: Any, expected: Any) -> str:
        """Difference of a result beyond rounding, as text; empty if there is none."""
        if actual is None:
            return "`self.out` is not set, so there is nothing to compare"
        if actual.shape != expected.shape:
            return f"the shape is {tuple(actual.shape)}, {tuple(expected.shape)} was expected"
        dtype = actual.dtype
        eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        if torch.allclose(actual, expected, rtol=max(_RELATIVE, 2 * eps), atol=_TOLERANCE):
            return ""
        most = float((actual.double() - expected.double()).abs().max())
        return f"the result differs from the reference by up to {most:.3g}"

    def _work(self, instance: Any, moved: int, tensors: Sequence[Any]) -> dict[str, Any]:
        """Bytes and floating-point operations of a call, and the dtype of the operations."""
        attributes = [value for value in vars(instance).values() if torch.is_tensor(value)]
        floats = [tensor for tensor in tensors or attributes if tensor.is_floating_point()]
        largest = max(floats, key=lambda tensor: tensor.numel(), default=None)
        dtype = "float32" if largest is None else str(largest.dtype).removeprefix("torch.")
        return {
            "bytes": getattr(instance, "bytes_moved", None) or moved or _bytes_of(attributes),
            "flops": getattr(instance, "flops", None),
            # `matmul` measures the limit for this dtype, and `torch.mm` takes no float8.
            "dtype": "bfloat16" if dtype.startswith("float8") else dtype,
        }

    def _machine(self) -> dict[str, str]:
        device = self.settings["device"]
        is_cpu = device == "cpu"
        compute = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        return {
            "gpu": "N/A" if is_cpu else torch.cuda.get_device_name(device),
            "backend": "CPU" if is_cpu else compute,
            "pytorchVersion": str(torch.__version__),
            "os": f"{platform.system()} {platform.release()}",
            "cpu": devices.cpu_name(),
        }


def _benchmark_classes(script: str) -> Iterator[tuple[str, type[Any]]]:
    """Yield the benchmark classes of a script by name; it is run once per process."""
    name = f"_kbuild_benchmark_script_{Path(script).stem}"
    if name not in sys.modules:
        _offer_client()
        spec = importlib.util.spec_from_file_location(name, script)
        if spec is None or spec.loader is None:
            raise ImportError(f"{script} is no Python file")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        os.chdir(Path(script).parents[1])  # where the client runs it
        spec.loader.exec_module(module)
    base = importlib.import_module("kernels.benchmark").Benchmark
    for attribute, value in sorted(vars(sys.modules[name]).items()):
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == name:
            yield attribute, value


def _workloads(owner: type[Any]) -> list[str]:
    names = (name for name in dir(owner) if name.startswith(_MEASURE))
    return [name.removeprefix(_MEASURE) for name in names if callable(getattr(owner, name))]


def _offer_client() -> None:
    """Provide the base class of benchmarks if the `kernels` client is not installed."""
    if importlib.util.find_spec("kernels") is not None:
        return

    class Benchmark:
        """Attributes of the client's class that benchmarks use."""

        seed: int | None = None
        device = "cpu"

        def __init__(self) -> None:
            self.kernel: Any = None
            self.out: Any = None

        def setup(self) -> None:
            """Set up workloads that have no method of their own for it."""

    package, module = ModuleType("kernels"), ModuleType("kernels.benchmark")
    package.__path__ = []
    module.Benchmark = Benchmark  # type: ignore[attr-defined]
    sys.modules |= {"kernels": package, "kernels.benchmark": module}


def _traffic(call: Callable[[], Any]) -> tuple[int, list[Any]]:
    """Bytes of the inputs and outputs of the kernel's ops in a call, and these tensors.

    Torch's own ops are not counted: both are empty if the kernel registers no op with Torch.
    """
    modes: Any = importlib.import_module("torch.utils._python_dispatch")
    tree: Any = importlib.import_module("torch.utils._pytree")
    moved, seen = [0], []

    class Traffic(modes.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            outputs = func(*args, **(kwargs or {}))
            if func.namespace not in _TORCH_NAMESPACES:
                values = tree.tree_leaves((args, kwargs, outputs))
                tensors = [value for value in values if torch.is_tensor(value)]
                moved[0] += _bytes_of(tensors)
                seen.extend(tensors)
            return outputs

    with Traffic():
        call()
    return moved[0], seen


def _bytes_of(tensors: Iterable[Any]) -> int:
    """Sum of bytes, each memory once; an expanded tensor counts with the memory that it has."""
    sizes = {}
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        sizes[tensor.data_ptr(), size] = min(size, tensor.untyped_storage().nbytes())
    return sum(sizes.values())
