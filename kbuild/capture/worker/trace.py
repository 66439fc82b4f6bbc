"""Runs a Python wrapper once on tensors without data, and records what it launches and calls.

The sizes of the tensors are symbols, see `symbols`. A run takes one path: the steps of that
path, the values that it returns, and the conditions under which a call takes it.
"""

from __future__ import annotations

import dis
import inspect
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import _config as symbolic_shapes_config
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from kbuild.capture.expression_values import CAPABILITIES
from kbuild.capture.programs import CaptureError
from kbuild.capture.worker.calls import CallFilter
from kbuild.capture.worker.contexts import Context, Needs
from kbuild.capture.worker.module_state import module_state
from kbuild.capture.worker.recorder import Recorder
from kbuild.capture.worker.replacements import in_place_of_triton
from kbuild.capture.worker.runs import (
    LARGEST_ARGUMENT,
    Bounds,
    NeedsContiguous,
    TensorArgument,
    Trace,
    WrapperCall,
)
from kbuild.capture.worker.settings import Settings
from kbuild.capture.worker.symbols import Symbols, UnprintableError
from kbuild.capture.worker.tensors import contiguous_strides

_INTERNAL = (AttributeError, ImportError, NameError, NotImplementedError)
_INTERNAL_NAMES = {"UnsupportedOperatorException", "GuardOnDataDependentSymNode"}
"""Errors that only a run has, unless the author's code raises them."""


def traced(
    call: WrapperCall, hints: Mapping[str, int | float], decisions: Mapping[str, bool]
) -> Trace:
    """One run.

    Args:
        call: the function and its arguments.
        hints: an example value for each symbol.
        decisions: answers to questions that are not about sizes.

    Raises:
        CaptureError: the path cannot be captured.
        UnprintableError: an expression has no form in `build.toml`.
    """
    symbols = Symbols(hints)
    recorder = Recorder(symbols, call.files)
    trace = recorder.trace
    state = module_state(list(recorder.modules()))
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

    mode = FakeTensorMode(shape_env=symbols.env, allow_non_fake_inputs=True)
    config = symbolic_shapes_config.patch(backed_size_oblivious=True)
    span = call.bounds.get("capability()", Bounds(*CAPABILITIES))
    stand_in = in_place_of_triton(recorder, (span.least, span.most), call.device)
    with config, stand_in, torch.no_grad(), mode:
        values = [_argument(name, value, call, recorder) for name, value in call.arguments]
        try:
            with recorder, state.taken_away(), calls.active():
                _run(call, values, recorder, needs)
        except NeedsContiguous:
            calls.require_followed()
            raise
        except CaptureError as error:
            calls.require_followed()
            error.place = error.place or _place(error, call.files)
            raise
        except GuardOnDataDependentSymNode:
            raise CaptureError("decides on what is in a tensor", recorder.line()) from None
        except Exception as error:  # noqa: BLE001 - the author's code
            calls.require_followed()
            place = _place(error, call.files)
            if reason := _reason_against(error, recorder):
                raise CaptureError(reason, place) from None
            trace.raises, trace.place = f"{type(error).__name__}: {error}", place
    trace.guards, trace.hints = symbols.guards(), dict(symbols.hints)
    return trace


def _run(
    call: WrapperCall, values: list[Any], recorder: Recorder, decide: Callable[[str], bool]
) -> None:
    trace, symbols = recorder.trace, recorder.symbols
    if not (isinstance(call.function, type) and issubclass(call.function, torch.autograd.Function)):
        names = [name for name, _ in call.arguments]
        parameters = inspect.signature(call.function).parameters
        options = {n for n in names if parameters[n].kind is inspect.Parameter.KEYWORD_ONLY}
        known = dict(zip(names, values, strict=True))
        results = call.function(
            *(value for name, value in known.items() if name not in options),
            **{name: value for name, value in known.items() if name in options},
        )
        trace.outputs = _outputs(results, recorder)
        return
    function: Any = call.function
    able = [isinstance(v, torch.Tensor) and v.dtype.is_floating_point for v in values]
    context = Context(Needs(decide, len(values), able))
    # Torch runs `forward` without gradients, whatever the mode of the caller.
    with recorder.settings.decided("grad_enabled", False):
        if function.setup_context is not torch.autograd.Function.setup_context:
            results = function.forward(*values)
            function.setup_context(context, tuple(values), results)
        else:
            results = function.forward(context, *values)
    trace.outputs = _outputs(results, recorder)
    if not call.backward:
        return
    recorder.settings.is_backward = True
    trace.boundary = {
        "guards": len(symbols.guards()), "steps": len(trace.steps), "buffers": len(trace.buffers),
    }  # fmt: skip
    listed = results if isinstance(results, (tuple, list)) else (results,)
    marked = {id(tensor) for tensor in context.non_differentiable}
    trace.without_gradient = [at for at, result in enumerate(listed) if id(result) in marked]
    gradients = [_gradient(at, result, call, recorder) for at, result in enumerate(listed)]
    trace.saved = [recorder.value(tensor) for tensor in context.saved_tensors]
    back = function.backward(context, *gradients)
    trace.gradients = _outputs(back, recorder)
    # Parameters that callers leave out have none.
    trace.gradients += [None] * (len(values) - len(trace.gradients))


def _gradient(
    position: int, result: Any, call: WrapperCall, recorder: Recorder
) -> torch.Tensor | None:
    """The gradient that the backward pass gets for a result."""
    if not isinstance(result, torch.Tensor):
        return None
    name = f"grad_{position}"
    if name in call.contiguous:
        strides = contiguous_strides(result.shape)
    else:
        strides = [
            recorder.symbols.integer(f"stride({name}, {axis})") for axis in range(result.dim())
        ]
    with recorder.paused():
        gradient = torch.empty_strided(
            tuple(result.shape), strides, dtype=result.dtype, device=result.device
        )
    recorder.enter(name, gradient)
    return gradient


def _outputs(results: Any, recorder: Recorder) -> list[Any]:
    listed = results if isinstance(results, (tuple, list)) else (results,)
    return [recorder.returned(result) for result in listed]


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
        strides = contiguous_strides(sizes)
    else:
        strides = [
            symbols.integer(f"stride({name}, {axis})", 0, LARGEST_ARGUMENT)
            for axis in reversed(range(len(sizes)))
        ]
        strides.reverse()
    tensor = torch.empty_strided(sizes, strides, dtype=getattr(torch, value.dtype), device="cuda")
    recorder.enter(name, tensor)
    return tensor


def _reason_against(error: Exception, recorder: Recorder) -> str:
    """Why an error is not one that callers of the function get; empty if it is."""
    if isinstance(error, UnprintableError):
        return f"computes `{error}`, which has no form in an expression"
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return ""
    code = last.tb_frame.f_code
    if recorder.is_author(code.co_filename):
        raising = {i.offset for i in dis.get_instructions(code) if i.opname == "RAISE_VARARGS"}
        if last.tb_lasti in raising:
            return ""
    if type(error).__name__ == "AcceleratorError":
        return "asks what is in a tensor, or asks the GPU, which no launch can wait for"
    is_internal = isinstance(error, _INTERNAL) or type(error).__name__ in _INTERNAL_NAMES
    is_internal |= isinstance(error, AssertionError) and "/torch/" in code.co_filename
    if is_internal or re.search("Sym(Int|Float|Bool)|FakeTensor|NVIDIA driver", str(error)):
        first = next(iter(str(error).splitlines()), "")
        return f"cannot be followed here: {type(error).__name__}: {first}"
    return ""


def _place(error: BaseException, files: Sequence[Path]) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if f.filename.startswith(tuple(str(file) for file in files))]
    last = (mine or list(frames))[-1]
    return f"{last.filename}:{last.lineno}"
