"""Questions that a wrapper asks of the process it runs in, and what capture does about each.

A capture runs the wrapper in a process of its own, so none of these answers may end up in an op as
it was then. `ARGUMENTS` are asked again at each call, in Python, and given to the op; `CONSTANTS`
have one answer wherever the op runs; `REFUSED` has what to do about the rest. A call that is in no
table, and that capture cannot follow, is refused as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "asked_"
"""Prefix of the op's argument with the answer; the backward op has answers of its own."""
BACKWARD_PREFIX = "asked_backward_"


@dataclass(frozen=True)
class Question:
    """A question whose answer is an argument of the op."""

    expression: str
    """Python expression that asks the question; `{}` is the tensor that it is about."""
    functions: tuple[str, ...] = ()
    """Functions of Torch, written in C, that answer it."""
    choices: tuple[str, ...] = ()
    """Answers that are captured if the answer is a string; a call with another one is refused."""
    is_closed: bool = False
    """True if `choices` are all answers there can be."""


_DTYPES = ("float32", "float16", "bfloat16")
ARGUMENTS: Mapping[str, Question] = {
    "allow_tf32": Question(
        "torch.backends.cuda.matmul.allow_tf32", ("torch._C._get_cublas_allow_tf32",)
    ),
    "float32_matmul_precision": Question(
        "torch.get_float32_matmul_precision()",
        ("torch._C._get_float32_matmul_precision",),
        ("highest", "high", "medium"),
        is_closed=True,
    ),
    "cudnn_allow_tf32": Question(
        "torch.backends.cudnn.allow_tf32", ("torch._C._get_cudnn_allow_tf32",)
    ),
    "cudnn_benchmark": Question(
        "torch.backends.cudnn.benchmark", ("torch._C._get_cudnn_benchmark",)
    ),
    "cudnn_deterministic": Question(
        "torch.backends.cudnn.deterministic", ("torch._C._get_cudnn_deterministic",)
    ),
    "cudnn_enabled": Question("torch.backends.cudnn.enabled", ("torch._C._get_cudnn_enabled",)),
    "deterministic_algorithms": Question(
        "torch.are_deterministic_algorithms_enabled()", ("torch._C._get_deterministic_algorithms",)
    ),
    "deterministic_warn_only": Question(
        "torch.is_deterministic_algorithms_warn_only_enabled()",
        ("torch._C._get_deterministic_algorithms_warn_only",),
    ),
    "grad_enabled": Question("torch.is_grad_enabled()", ("torch._C.is_grad_enabled",)),
    "inference_mode": Question(
        "torch.is_inference_mode_enabled()", ("torch._C.is_inference_mode_enabled",)
    ),
    "autocast_enabled": Question(
        'torch.is_autocast_enabled("cuda")', ("torch._C.is_autocast_enabled",)
    ),
    "autocast_dtype": Question(
        'str(torch.get_autocast_dtype("cuda")).removeprefix("torch.")',
        ("torch._C.get_autocast_dtype", "torch._C.get_autocast_gpu_dtype"),
        ("float16", "bfloat16", "float32"),
    ),
    "default_dtype": Question(
        'str(torch.get_default_dtype()).removeprefix("torch.")',
        ("torch._C.get_default_dtype",),
        _DTYPES,
    ),
    "is_compiling": Question(
        "torch.compiler.is_compiling()",
        ("torch.compiler.is_compiling", "torch._utils.is_compiling"),
    ),
    "requires_grad_{}": Question("{0} is not None and {0}.requires_grad"),
    "is_leaf_{}": Question("{0} is not None and {0}.is_leaf"),
    "is_inference_{}": Question("{0} is not None and {0}.is_inference()"),
}
"""Name of the question -> how it is asked at each call."""

CONSTANTS: Mapping[str, object] = {
    "torch.jit._trace.is_tracing": False,
    "torch._jit_internal.is_scripting": False,
    "torch.compiler.is_dynamo_compiling": False,
    "torch._dynamo.is_compiling": False,
    "torch._dynamo.external_utils.is_compiling": False,
    "torch.cuda.is_available": True,
    "torch.accelerator.is_available": True,
}
"""Function -> its answer in every op: it runs on a GPU, and nobody traces into it."""

_AS_ARGUMENT = "make it an argument of the function"
REFUSED: Mapping[str, tuple[str, str]] = {
    r"os\.(environ|getenv|_Environ)|collections\.abc\.\w*Mapping": (
        "reads an environment variable", _AS_ARGUMENT
    ),
    r"_?time\.|_?datetime\.": ("asks for the time", "measure outside of the function"),
    r"_?random\.|secrets\.|uuid\.|numpy\.random|torch\.(cuda\.)?random\.|torch\.Generator|"
    r"torch\._C\._?(get|cuda)\w*(seed|Generator)|torch\.(seed|initial_seed|manual_seed)": (
        "asks for random numbers or their seed", "take the seed as an argument"
    ),
    r"torch\.distributed|torch\._C\._distributed": (
        "asks for its place among processes", "take the rank and the world size as arguments"
    ),
    r"platform\.|sys\.|_?socket\.|importlib\.(metadata|resources)|subprocess\.|posix\.": (
        "asks what system it runs on", _AS_ARGUMENT
    ),
    r"builtins\.(open|input)|io\.|pathlib\.|tempfile\.|shutil\.|posixpath\.|genericpath\.": (
        "reads files", "read them when the module is imported"
    ),
    r"torch\.cuda\.(device_count|get_device_name)|torch\.accelerator\.": (
        "asks what GPUs there are", _AS_ARGUMENT
    ),
    r"torch\.cuda\.memory|torch\.cuda\.(streams|current_stream|Stream|Event)": (
        "asks for the state of the GPU", "leave streams and memory to the caller"
    ),
    r"builtins\.(globals|locals|vars|eval|exec|compile|id)": (
        "asks the interpreter", "write what it needs by name"
    ),
    r"torch\.autograd\.grad_mode\.(set_|inference)|torch\.(set_|use_deterministic|_C\._?set_)|"
    r"torch\.backends\..*(set|flags)": (
        "changes a setting of Torch", "leave settings to the caller"
    ),
    r"triton\.knobs": ("reads a setting of Triton", _AS_ARGUMENT),
    r"triton\.testing": ("measures a kernel", "tune with `@triton.autotune`"),
    r"cuda\.tile(\.tune|_experimental)": ("measures a kernel", "launch one of the candidates"),
    r"torch\._C\.(TensorBase|Tensor)\.|torch\._tensor\.": (
        "asks for something that only Torch's tensors have", _AS_ARGUMENT
    ),
}  # fmt: skip
"""Pattern of a function's name -> what it is that the function does, and what to do instead."""


# The patterns of environment, time, random numbers and processes, which are first in `REFUSED`.
_AT_IMPORT = tuple(REFUSED)[:4]
_SETTINGS = {
    "torch.backends.cuda.cuBLASModule.allow_tf32", "torch.get_float32_matmul_precision",
    "torch.backends.ContextProp.__get__", "torch.are_deterministic_algorithms_enabled",
    "torch.is_grad_enabled", "torch.is_autocast_enabled", "torch.get_default_dtype",
    "torch.is_inference_mode_enabled", "torch.get_autocast_dtype", "torch.get_autocast_gpu_dtype",
}  # fmt: skip


def refusal(name: str) -> str:
    """The message for a call that capture does not follow."""
    # The first pattern that fits counts: some names fit several.
    for pattern, (action, remedy) in REFUSED.items():
        if re.match(pattern, name):
            return f"{action} (`{name}`), which capture does not follow: {remedy}"
    return (
        f"calls `{name}`, whose answer may differ from call to call: make it an argument of the "
        "function, or call it when the module is imported"
    )


def is_setting(name: str) -> bool:
    """True if a function that modules call at import reads a setting, or draws a random number."""
    if any(name in question.functions for question in ARGUMENTS.values()):
        return True
    return any(re.match(pattern, name) for pattern in _AT_IMPORT) or name in _SETTINGS


def argument_name(question: str, *, backward: bool) -> str:
    """The op's argument with the answer to a question."""
    return (BACKWARD_PREFIX if backward else PREFIX) + question


def asked_by(argument: str) -> tuple[Question, str]:
    """The question that an op's argument answers, and how it is asked at a call."""
    # The longer prefix is removed first, because it begins with the other one.
    name = argument.removeprefix(BACKWARD_PREFIX).removeprefix(PREFIX)
    for known, question in ARGUMENTS.items():
        start, has_parameter, _ = known.partition("{}")
        if name == known or (has_parameter and name.startswith(start)):
            return question, question.expression.format(name.removeprefix(start))
    raise KeyError(argument)


def schema_of(argument: str) -> tuple[str, str]:
    """The kind of an op's argument that answers a question, and its default."""
    question, _ = asked_by(argument)
    return ("str", f'"{question.choices[0]}"') if question.choices else ("bool", "False")


def answers_of(decisions: Mapping[str, bool]) -> dict[str, Any]:
    """Arguments of the ops that have the answers to what the function asks of the process."""
    answers: dict[str, Any] = {}
    for question, answer in decisions.items():
        name, _, choice = question.partition(" == ")
        if not name.startswith(PREFIX):
            continue
        if not choice or answer:
            answers[name] = ast.literal_eval(choice) if choice else answer
        else:
            # A closed question never asks for its last choice: that is what is left.
            answers.setdefault(name, asked_by(name)[0].choices[-1])
    return answers
