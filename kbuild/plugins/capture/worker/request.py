"""Captures one Python function: every path, for every choice of dtypes and options.

Run as a program: it reads requests as JSON and writes the answers as JSON, see `Request`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import inspect
import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from triton.runtime import driver

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.values import BATCH, CAPABILITIES
from kbuild.plugins.capture.worker.imports import AskedAtImportError, imported_function
from kbuild.plugins.capture.worker.paths import run_once, walk
from kbuild.plugins.capture.worker.runs import (
    Bounds,
    RunDevice,
    TensorArgument,
    WrapperCall,
    parameters_of,
)
from kbuild.plugins.capture.worker.samples import sampled
from kbuild.plugins.capture.worker.trace import is_autograd

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_HINTS = (3, 5, 7, 6, 9, 11, 13)
_PLAIN_DEFAULTS = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Request:
    """The function that a worker captures, and its arguments.

    Attributes:
        function: `module:name`.
        folders: in which modules are found, the author's first.
        arguments: parameter -> its description, see `read_arguments` of the head.
        sizes: name of a dimension -> its smallest and largest value.
        examples: name -> a value that the first run has.
        backward: whether the backward pass is captured as well.
        names: parameter -> what it is called in the op, where it has another name.
    """

    function: str
    folders: Sequence[str]
    arguments: Mapping[str, Mapping[str, Any]]
    sizes: Mapping[str, tuple[int, int]]
    examples: Mapping[str, float]
    backward: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    batch: int = 2
    """Number of dimensions that `...` stands for."""
    contiguous: Sequence[str] = ()
    """Tensors that are contiguous in every call."""
    differentiated: bool = False
    """True if Torch differentiates the function."""
    device: Mapping[str, Any] = field(default_factory=dict)
    """See `RunDevice.facts`."""
    generated: bool = False
    """True if a DSL writes the kernels."""
    calls: str = ""
    """See `CapturedLanguage.calls`."""
    targets: Sequence[Mapping[str, Any]] = ()
    """`device_facts` of all archs that are compiled for, which `calls` may need."""
    random_calls: int = 48
    """Number of calls that the ops are compared with."""


def captured(request: Request) -> dict[str, Any]:
    """The paths of a function, as JSON.

    Raises:
        CaptureError: a path cannot be captured.
    """
    if request.generated:
        driver.set_active(GeneratorDriver())  # generators see a GPU, for the rest of the process
    device = RunDevice(request.device)
    function, notes = _walked_function(request, device)
    source = inspect.getsourcefile(inspect.unwrap(function))
    line = inspect.getsourcelines(function)[1]
    parameters = _parameters(function, request)
    names = [parameter.name for parameter in parameters]
    declared = {name for name, d in request.arguments.items() if d.get("contiguous")}
    contiguous = {*request.contiguous, *declared}
    capability = device.capability
    bounds = _bounds(request, capability)
    own = {"capability": capability} if capability or device.is_amd else {}
    runs: list[dict[str, Any]] = []
    calls = []
    for configuration in configurations(request):
        arguments, hints = _arguments(parameters, configuration, bounds, request)
        # Those of an H100; other values are paths.
        hints = {"sm_count()": 132, "capability()": capability or 90, **hints}
        # All configurations share the set `contiguous`, which a walk extends.
        call = WrapperCall(
            function, arguments, bounds, [Path(f) for f in request.folders],
            request.backward, f"{source}:{line}", contiguous, device, request.generated,
            request.differentiated,
        )  # fmt: skip
        known = len(contiguous), request.differentiated
        paths = walk(call, hints)
        calls.append(({**configuration, **own}, call, hints, paths.traces))
        if (len(contiguous), call.differentiated) != known:
            request = replace(
                request, contiguous=sorted(contiguous), differentiated=call.differentiated
            )
            if runs:  # the others were made in another way
                return captured(request)
        runs.append({
            "configuration": {**configuration, **own},
            "traces": [asdict(trace) for trace in paths.traces],
            "unproven": paths.unproven,
            "dropped": paths.dropped,
        })  # fmt: skip
    return {
        "parameters": names,
        "defaults": _defaults(parameters),
        "source": source,
        "line": line,
        "contiguous": sorted(contiguous),
        "differentiated": request.differentiated,
        "runs": runs,
        "samples": sampled(calls, request.function, request.random_calls),
        "asked_vendor": device.asked,
        "kernels": generated_sources(runs) if request.generated else {},
        "notes": list(notes),
    }


def _walked_function(request: Request, device: RunDevice) -> tuple[Any, Mapping[str, None]]:
    """The function whose paths are walked, and the notes on its kernels, which the walk adds to."""
    calls = None
    if request.calls:
        targets = [request.device] if device.capability else request.targets
        # Before the author's modules are imported: they may call a kernel.
        calls = importlib.import_module(request.calls).KernelCalls(targets)
    named = imported_function(
        request.function, request.folders, device, generated=request.generated
    )
    function = _function(named, request)
    return (function, {}) if calls is None else (calls.function(function), calls.notes)


def _defaults(parameters: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Defaults that can be written into a schema, as Python writes them."""
    return {p.name: repr(p.default) for p in parameters if isinstance(p.default, _PLAIN_DEFAULTS)}


def _arguments(
    parameters: Sequence[inspect.Parameter],
    configuration: Mapping[str, Any],
    bounds: Mapping[str, Bounds],
    request: Request,
) -> tuple[list[tuple[str, Any]], dict[str, float]]:
    """The arguments of the calls of a configuration, and hints for their symbols."""
    hints = dict(request.examples)
    arguments = [
        (parameter.name, _value(parameter, configuration, hints, request))
        for parameter in parameters
    ]
    return arguments, {**_size_hints(arguments, bounds, request.examples), **hints}


def _function(named: Any, request: Request) -> Any:
    """The author's function, or the class where it is the `apply` of one.

    Raises:
        CaptureError: it is an operator whose gradient is not in the function.
    """
    owner = getattr(named, "__self__", None)
    if is_autograd(owner) and getattr(named, "__name__", "") == "apply":
        return owner
    if isinstance(named, torch.library.CustomOpDef):
        function = _inside(named)
        if named._backward_fn is not None and request.backward:  # noqa: SLF001
            message = "has a gradient by `register_autograd`, which is not followed: write an"
            place = f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
            raise CaptureError(f"{message} `autograd.Function`, or `backward = false`", place)
        return function
    return named


def _bounds(request: Request, capability: int) -> dict[str, Bounds]:
    """Bounds of the sizes and of the GPU's capability."""
    shapes = [described.get("shape", ()) for described in request.arguments.values()]
    bounds = {str(size): Bounds() for shape in shapes for size in shape}
    bounds["capability()"] = Bounds(*((capability, capability) if capability else CAPABILITIES))
    bounds["sm_count()"] = Bounds(1, 1024)
    bounds |= {name: Bounds(*span) for name, span in request.sizes.items()}
    return bounds


def _parameters(function: Any, request: Request) -> list[inspect.Parameter]:
    """Parameters of the author's function, without `ctx`.

    Raises:
        CaptureError: the request is not about them.
    """
    is_class = isinstance(function, type)
    parameters = parameters_of(function.forward if is_class else function)
    if is_class and function.setup_context.__qualname__.startswith("_SingleLevelFunction"):
        # A class without `setup_context` of its own takes `ctx` first.
        parameters = parameters[1:]
    parameters = [p.replace(name=request.names.get(p.name, p.name)) for p in parameters]
    names = [parameter.name for parameter in parameters]
    for name in request.arguments.keys() - set(names):
        raise CaptureError(f"`{request.function}` has no parameter `{name}`: {', '.join(names)}")
    for parameter in parameters:
        if parameter.name not in request.arguments and parameter.default is parameter.empty:
            raise CaptureError(f"nothing says what `{parameter.name}` of `{request.function}` is")
    return parameters


def configurations(request: Request) -> Iterator[dict[str, Any]]:
    """Every choice of dtypes, of given tensors and of options."""
    axes: list[list[dict[str, Any]]] = []
    for name, described in request.arguments.items():
        if "shape" in described:
            dtypes = described["dtypes"]
            if isinstance(dtypes, list):
                axes.append([{f"dtype:{name}": dtype} for dtype in dtypes])
            if described.get("optional"):
                axes.append([{f"has:{name}": True}, {f"has:{name}": False}])
        elif "choices" in described:
            axes.append([{f"value:{name}": choice} for choice in described["choices"]])
    for chosen in itertools.product(*axes):
        configuration: dict[str, Any] = {}
        for part in chosen:
            configuration.update(part)
        for name, described in request.arguments.items():
            dtypes = described.get("dtypes")
            if isinstance(dtypes, str):
                known = configuration.get(f"dtype:{dtypes}")
                configuration[f"dtype:{name}"] = known or dtypes
        yield configuration


def _value(
    parameter: inspect.Parameter,
    configuration: Mapping[str, Any],
    hints: dict[str, float],
    request: Request,
) -> Any:
    name = parameter.name
    if name not in request.arguments:
        return parameter.default
    described = request.arguments[name]
    if "shape" in described:
        if not configuration.get(f"has:{name}", True):
            return None
        sizes: list[str] = []
        for size in described["shape"]:
            sizes += BATCH[: request.batch] if size == "..." else [str(size)]
        return TensorArgument(
            name, sizes, configuration[f"dtype:{name}"], bool(described.get("contiguous"))
        )
    if "choices" in described:
        return configuration[f"value:{name}"]
    if "kind" in described:
        hints.setdefault(name, described.get("example", 1))
        return [described["kind"]]
    return described["value"]


def _size_hints(
    arguments: Sequence[tuple[str, Any]],
    bounds: Mapping[str, Bounds],
    examples: Mapping[str, float],
) -> dict[str, float]:
    """Different values for different names, each within its bounds."""
    hints: dict[str, float] = {}
    numbers = itertools.cycle(_HINTS)
    for _, value in arguments:
        for size in value.sizes if isinstance(value, TensorArgument) else ():
            if size.isidentifier() and size not in hints:
                span = bounds.get(size, Bounds())
                hints[size] = examples.get(size, min(max(next(numbers), span.least), span.most))
    return hints


def _inside(op: Any) -> Any:
    """The function that an op of `torch.library` was made of."""
    function = op._init_fn  # noqa: SLF001 - there is no public name
    if function.__module__.startswith("torch."):  # `triton_op` wraps it once more
        function = inspect.getclosurevars(function).nonlocals["fn"]
    return function


def main() -> None:
    """Read requests, and write each answer into the file that its request names.

    A fork of this process answers each: Torch is imported once, and no run changes another one.
    """
    _end_with_parent()
    # No network, where namespaces are allowed.
    _LIBC.unshare(_NEW_USER | _NEW_NETWORK)
    run_once()
    sys.dont_write_bytecode = True  # nothing is added to the author's folders
    requests = json.load(sys.stdin)
    for module in {data.get("calls", "") for data in requests} - {""}:
        importlib.import_module(module)
    gc.freeze()  # no fork looks for garbage among what was imported, and so copies its pages
    for data in requests:
        # The alarm ends this process; the fork, which has none, ends with it.
        signal.alarm(data.pop("seconds"))
        process = os.fork()
        if not process:
            _end_with_parent()
            _answer(Path(data.pop("answer")), Request(**data))
            sys.stdout.flush()
            # A fork must not run what the parent has registered for its own end.
            os._exit(0)
        os.waitpid(process, 0)


def _answer(file: Path, request: Request) -> None:
    answer: dict[str, Any]
    try:
        answer = captured(request)
    except AskedAtImportError as error:
        answer = {"error": error.message, "place": error.place, "asked": True}
    except CaptureError as error:
        answer = {"error": error.message, "place": error.place}
    except Exception as error:  # noqa: BLE001 - the author's code
        frames = traceback.extract_tb(error.__traceback__)
        mine = [f for f in frames if f.filename.startswith(tuple(request.folders))]
        place = f"{mine[-1].filename}:{mine[-1].lineno}" if mine else ""
        answer = {"error": f"ends in {type(error).__name__}: {error}", "place": place}
    file.write_text(json.dumps(answer), encoding="utf-8")


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_PROPERTIES = {
    "max_shared_mem": 3 << 15, "max_num_regs": 65536, "multiprocessor_count": 1, "warpSize": 32,
}  # fmt: skip
"""Device properties that generators derive defaults from; made up, and the same for every GPU."""


class GeneratorDriver:
    """A driver of Triton for generators; nothing is launched with it."""

    @property
    def utils(self) -> GeneratorDriver:
        """The driver itself, which answers the questions about the device."""
        return self

    def get_current_device(self) -> int:
        """Number of the only device."""
        return 0

    def get_device_properties(self, _: int) -> Mapping[str, int]:
        """Properties that are the same for every GPU, so that the sources are the same."""
        return _PROPERTIES


def generated_sources(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """File -> source of the kernels that runs launched and no author has written, in order."""
    # `session` gives the worker an empty home, into which generators write.
    home = f"{Path.home()}/"
    files = (
        step["file"]
        for run in runs
        for trace in run["traces"]
        for step in trace["steps"]
        if "launch" in step
    )
    return {
        file: Path(file).read_text("utf-8")
        for file in dict.fromkeys(files)
        if file.startswith(home)
    }


if __name__ == "__main__":
    main()
