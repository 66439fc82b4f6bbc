"""Runs a Python wrapper once on tensors without data, and records what it launches and calls.

The sizes of the tensors are symbols, see `symbols`. A run takes one path: the steps of that
path, the values that it returns, and the conditions under which a call takes it.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.fx.experimental import _config as symbolic_shapes_config
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from kbuild.plugins.capture.programs import CaptureError, written_roots
from kbuild.plugins.capture.values import CAPABILITIES
from kbuild.plugins.capture.worker.calls import CallFilter
from kbuild.plugins.capture.worker.differentiation import (
    Context,
    Needs,
    defines_functions,
    differentiable,
    gradients,
    is_argument,
)
from kbuild.plugins.capture.worker.module_state import module_state
from kbuild.plugins.capture.worker.recorder import Recorder
from kbuild.plugins.capture.worker.replacements import in_place_of_triton
from kbuild.plugins.capture.worker.runs import (
    LARGEST_ARGUMENT,
    Bounds,
    NeedsContiguous,
    NeedsGradients,
    NotFollowedError,
    Structure,
    TensorArgument,
    Trace,
    WrapperCall,
    parameters_of,
)
from kbuild.plugins.capture.worker.settings import Settings
from kbuild.plugins.capture.worker.symbols import Numbers, Symbols
from kbuild.plugins.capture.worker.tensors import usual_strides

_OF_GPUS = ("/torch/cuda/", "/triton/runtime/", "/triton/backends/", "/triton/compiler/")
"""Parts of paths of modules whose errors are for want of a GPU."""
_UNSUPPORTED = (
    fake_tensor.DynamicOutputShapeException, fake_tensor.UnsupportedFakeTensorException,
    fake_tensor.UnsupportedMutationAliasingException, fake_tensor.UnsupportedOperatorException,
    NotImplementedError,
)  # fmt: skip
"""Errors of operators that need data."""


def traced(
    call: WrapperCall,
    hints: Mapping[str, int | float],
    decisions: Mapping[str, bool],
    recorder: Recorder | None = None,
) -> Trace:
    """Run the function once, and record the run.

    Args:
        call: the function and its arguments.
        hints: an example value for each symbol.
        decisions: answers to questions that are not about sizes.
        recorder: of another kind; its symbols have hints of their own.

    Raises:
        CaptureError: the path cannot be captured.
        NeedsGradients: Torch differentiates a result of the function.
    """
    trace = _traced(call, hints, decisions, recorder)
    if recorder is None and _may_have_gradients(call, trace):
        again = _traced(replace(call, differentiated=True), hints, decisions)
        if again.raises or any(gradient is not None for gradient in again.gradients):
            raise NeedsGradients
    return trace


def _may_have_gradients(call: WrapperCall, trace: Trace) -> bool:
    """True if a second run is needed to see if Torch differentiates a result of the function.

    It differentiates nothing where kernels alone write to new memory.
    """
    if is_autograd(call.function) or call.differentiated or not call.backward or trace.raises:
        return False
    roots = {value["tensor"] for value in trace.outputs if value}
    return bool(roots) and (
        any("aten" in step for step in trace.steps)
        or not roots <= {buffer["name"] for buffer in trace.buffers}
        or defines_functions()
    )


def _traced(
    call: WrapperCall,
    hints: Mapping[str, int | float],
    decisions: Mapping[str, bool],
    recorder: Recorder | None = None,
) -> Trace:
    recorder = recorder or Recorder(Symbols(hints, call.bounds), call.files, call.place)
    recorder.keeps_strides = call.keeps_strides
    trace, error = _followed(call, recorder, decisions)
    if error is not None:
        trace.place = _place(error, call.files) or call.place
        if not (isinstance(error, NotFollowedError) or _is_raised_by(error, call.files)):
            _require_same_error(call, trace, error)
        trace.raises = f"{type(error).__name__}: {error}"
    return trace


def _followed(
    call: WrapperCall, recorder: Recorder, decisions: Mapping[str, bool]
) -> tuple[Trace, Exception | None]:
    """Run the function once; the record, and the error that ended the run."""
    symbols = recorder.symbols
    symbols.env.place = recorder.line
    trace, failure = recorder.trace, None
    state = module_state(recorder.modules)
    calls = CallFilter(recorder.is_author, state.explanation)
    forced: set[str] = set()

    def decide(question: str, *, usual: bool = True) -> bool:
        return trace.decisions.setdefault(question, decisions.get(question, usual))

    def needs(question: str) -> bool:
        if not trace.boundary:
            # The forward op cannot know, and does what it does for tensors with gradients.
            forced.add(question)
        return question in forced or decide(question)

    recorder.settings = Settings(recorder.is_author, decide)

    mode = fake_tensor.FakeTensorMode(shape_env=symbols.env, allow_non_fake_inputs=True)
    mode.cache_enabled = False  # of results of operators, which no other run has with these symbols
    # Otherwise Torch's own shortcuts for sizes of 0 and 1 would be conditions, and so paths.
    config = symbolic_shapes_config.patch(backed_size_oblivious=True)
    span = call.bounds.get("capability()", Bounds(*CAPABILITIES))
    stand_in = in_place_of_triton(recorder, (span.least, span.most), call.device)
    with config, stand_in, torch.set_grad_enabled(call.differentiated), mode:
        values = {name: _argument(name, value, call, recorder) for name, value in call.arguments}
        leaves = {
            name: differentiable(value)
            for name, value in values.items()
            if call.differentiated and _is_floating(value)
        }
        try:
            with recorder, state.taken_away(), calls.active():
                if is_autograd(call.function):
                    _run_class(call, [*values.values()], recorder, needs)
                else:
                    _run(call, values, leaves, recorder)
        except NeedsContiguous:
            # A refusal that the author's code has caught is the reason for what follows.
            calls.require_followed()
            raise
        except CaptureError as error:
            calls.require_followed()
            error.place = error.place or _place(error, call.files)
            raise
        except GuardOnDataDependentSymNode as error:
            place = _place(error, call.files)
            raise CaptureError("decides on what is in a tensor", place) from None
        # An error is the end of a path: calls that take it are refused.
        except Exception as error:  # noqa: BLE001 - the author's code
            calls.require_followed()
            failure = error
    trace.guards, trace.hints = symbols.guards(), dict(symbols.hints)
    return trace, failure


def _is_raised_by(error: BaseException, files: Sequence[Path]) -> bool:
    """True if an error comes from a `raise` or an `assert` in the author's files."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    statement = (last.line or "").split("(")[0].split()[:1]
    # An error that the author raises in place of another one may be due to a symbol.
    earlier = error.__cause__ or error.__context__
    return (
        last.filename.startswith(tuple(map(str, files)))
        and statement in (["raise"], ["assert"])
        and (earlier is None or _is_raised_by(earlier, files))
    )


def _require_same_error(call: WrapperCall, trace: Trace, error: Exception) -> None:
    """Run once more with numbers in place of symbols: Python and Torch end in errors of theirs.

    Raises:
        CaptureError: there the run ends otherwise, or for want of a GPU.
    """
    text = f"{type(error).__name__}: {error}".partition("\n")[0]
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    if any(part in last for part in _OF_GPUS) or isinstance(error, _UNSUPPORTED):
        message = f"does what cannot be followed without a GPU ({text})"
        raise CaptureError(f"{message}: move it out of the function", trace.place)
    _, other = _followed(
        call, Recorder(Numbers(trace.hints), call.files, call.place), trace.decisions
    )
    # A name may be made of a symbol.
    is_name = isinstance(error, (AttributeError, KeyError)) and isinstance(error.args[0], str)
    is_same = type(other) is type(error) and _place(other, call.files) == trace.place
    if not is_same or (is_name and str(error) != str(other)):
        message = f"does with a size or a number what cannot be followed ({text})"
        hint = "compute it with whole numbers, or pass it as an argument"
        raise CaptureError(f"{message}: {hint}", trace.place)


def is_autograd(author: Any) -> bool:
    """True if the captured object is an `autograd.Function`."""
    return isinstance(author, type) and issubclass(author, torch.autograd.Function)


def _run(
    call: WrapperCall,
    values: Mapping[str, Any],
    leaves: Mapping[str, torch.Tensor],
    recorder: Recorder,
) -> None:
    """A function; with `leaves`, and the backward pass of all that Torch differentiates."""
    trace = recorder.trace
    pairs = [*zip(parameters_of(call.function), values.values(), strict=True)]
    results = call.function(
        *(value for p, value in pairs if p.kind is not inspect.Parameter.KEYWORD_ONLY),
        **{p.name: value for p, value in pairs if p.kind is inspect.Parameter.KEYWORD_ONLY},
    )
    listed = _structured(results, trace, call.place)
    if not call.differentiated:
        trace.outputs = [recorder.returned(result) for result in listed]
        return
    differentiated = {
        at
        for at, result in enumerate(listed)
        if _is_floating(result)
        and result.requires_grad
        and not _is_argument(result, values, recorder)
    }
    listed = _apart(listed, recorder, differentiated)
    trace.outputs = [recorder.returned(result) for result in listed]
    _end_forward(recorder)
    trace.without_gradient = [at for at in range(len(listed)) if at not in differentiated]
    with torch.no_grad():
        given = []
        for at in sorted(differentiated):
            gradient = _gradient(at, listed[at], call, recorder)
            given.append((listed[at], recorder.contiguous(gradient)))
        gradients_by_name = gradients(given, leaves, recorder.symbols.text_of)
        trace.gradients = [recorder.returned(gradients_by_name.get(name)) for name in values]


def _run_class(
    call: WrapperCall, values: list[Any], recorder: Recorder, decide: Callable[[str], bool]
) -> None:
    """The passes of an `autograd.Function`."""
    trace, function = recorder.trace, call.function
    context = Context(Needs(decide, [_is_floating(value) for value in values]))
    # Torch runs `forward` without gradients, whatever the mode of the caller.
    with recorder.settings.decided("grad_enabled", False):
        if function.setup_context is not torch.autograd.Function.setup_context:
            results = function.forward(*values)
            function.setup_context(context, tuple(values), results)
        else:
            results = function.forward(context, *values)
    listed = own = _structured(results, trace, call.place)
    if call.backward:
        listed = _apart(own, recorder, range(len(own)))
    trace.outputs = [recorder.returned(result) for result in listed]
    if not call.backward:
        return
    _end_forward(recorder)
    # Of `own`, and not of `listed`: the author has marked tensors that are copied there.
    marked = {id(tensor) for tensor in context.non_differentiable}
    trace.without_gradient = [at for at, result in enumerate(own) if id(result) in marked]
    given, at = [], 0
    for item in results if isinstance(results, (tuple, list)) else (results,):
        given.append(_gradient(at, item, call, recorder))
        structure = Structure(call.place)
        structure.template(item)
        at += len(structure.leaves)
    trace.saved = [recorder.value(tensor) for tensor in context.saved_tensors]
    back = function.backward(context, *given)
    listed = list(back) if isinstance(back, (tuple, list)) else [back]
    trace.gradients = [recorder.returned(gradient) for gradient in listed]
    # Parameters that callers leave out have none.
    trace.gradients += [None] * (len(values) - len(trace.gradients))


def _end_forward(recorder: Recorder) -> None:
    trace = recorder.trace
    recorder.settings.is_backward = True
    trace.boundary = {
        "guards": len(recorder.symbols.guards()), "steps": len(trace.steps),
        "buffers": len(trace.buffers),
    }  # fmt: skip


def _structured(results: Any, trace: Trace, place: str) -> list[Any]:
    """The tensors of what a function returns."""
    structure = Structure(place)
    trace.structure, trace.classes = structure.template(results), structure.classes
    return structure.leaves


def _apart(listed: Sequence[Any], recorder: Recorder, among: Collection[int]) -> list[Any]:
    """Results with copies of those that are an argument, or a result once more.

    An argument that the function has written to gets its copy, `in_place_NAME`, when passes are put
    together (`kbuild.plugins.capture.backward`).
    """
    own = {buffer["name"] for buffer in recorder.trace.buffers}
    written = {root for step in recorder.trace.steps for root in written_roots(step)}
    seen: set[int] = set()
    results = []
    for at, result in enumerate(listed):
        if at in among and isinstance(result, torch.Tensor):
            root = recorder.value(result)["tensor"]
            if id(result) in seen or (root not in own and root not in written):
                results.append(recorder.cloned(result))
                continue
            seen.add(id(result))
        results.append(result)
    return results


def _is_argument(result: torch.Tensor, values: Mapping[str, Any], recorder: Recorder) -> bool:
    """True if a result is an argument, which Python returns with the gradient that it has."""
    described = recorder.value(result)
    if not isinstance(values.get(described["tensor"]), torch.Tensor):
        return False
    aten = (step for step in recorder.trace.steps if "aten" in step)
    return (
        described == recorder.value(values[described["tensor"]])
        and described["tensor"] not in {root for step in aten for root in step["written"]}
        and is_argument(result)
    )


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _gradient(
    position: int, result: Any, call: WrapperCall, recorder: Recorder
) -> torch.Tensor | None:
    """The gradient that the backward pass gets for a result."""
    if not isinstance(result, torch.Tensor):
        return None
    name = f"grad_{position}"
    if name in call.contiguous:
        strides = usual_strides(result.shape)
    else:
        strides = recorder.symbols.strides(name, result.shape)
    # The gradient comes from outside: allocating it is no step of the op.
    with recorder.paused():
        gradient = torch.empty_strided(
            tuple(result.shape), strides, dtype=result.dtype, device=result.device
        )
    recorder.enter(name, gradient)
    return gradient


def _argument(name: str, value: Any, call: WrapperCall, recorder: Recorder) -> Any:
    symbols = recorder.symbols
    if value == ["int"]:
        return symbols.integer(name, -LARGEST_ARGUMENT, LARGEST_ARGUMENT)
    if value == ["float"]:
        return symbols.number(name)
    if not isinstance(value, TensorArgument):
        return value
    sizes = []
    for text in value.sizes:
        bounds = call.bounds.get(text, Bounds())
        sizes.append(
            int(text) if text.isdigit() else symbols.integer(text, bounds.least, bounds.most)
        )
    if value.contiguous or name in call.contiguous:
        strides = usual_strides(sizes)
    else:
        strides = symbols.strides(name, sizes)
    tensor = torch.empty_strided(sizes, strides, dtype=getattr(torch, value.dtype), device="cuda")
    recorder.enter(name, tensor)
    return tensor


def _place(error: BaseException, files: Sequence[Path]) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if f.filename.startswith(tuple(str(file) for file in files))]
    return f"{mine[-1].filename}:{mine[-1].lineno}" if mine else ""
