"""What `kbuild capture` does about each question that a wrapper asks of its process."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.plugins.capture.captured_modules import wrapper_source
from kbuild.plugins.capture.functions import FunctionReader
from tests.support.capture_worker import worker_answers

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs Torch"),
]
HEAD = """
import functools, logging, math, os, platform, random, sys, time
from os import environ, getenv as ask_environment
from types import SimpleNamespace

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import is_grad_enabled as recording
from torch.backends.cuda import matmul

import settings
from settings import wants_speed

setting = torch.get_float32_matmul_precision
read = functools.partial(os.getenv, "SPEED")
FAST = False
TABLE = {"fast": False}
FACTORS = [1.0]
CONSTANT = 2.0
CHOICES = {"fast": 1.0}
REMEMBERED = {}
KEPT = {}
COUNT = None
FROM_ENVIRONMENT = os.environ.get("SPEED") == "1"
if os.getenv("SPEED"):
    BRANCH = 1
else:
    BRANCH = 2
STARTED = time.time()


class Options:
    shared = 1

    def __init__(self):
        self.fast, self.fixed = False, True

    def choose(self, fast):
        self.fast = fast

    @classmethod
    def share(cls, value):
        cls.shared = value


options = Options()
plain = SimpleNamespace(fast=False)


def choose(fast):
    global FAST
    FAST = fast
    TABLE["fast"] = fast
    FACTORS.append(1.0)
    plain.fast = fast
    settings.level = 2


@functools.lru_cache
def processors():
    return torch.cuda.get_device_properties(0).multi_processor_count


def count():
    global COUNT
    if COUNT is None:
        COUNT = torch.cuda.get_device_properties(0).multi_processor_count
    return COUNT


def remembered(dtype):
    if dtype not in REMEMBERED:
        REMEMBERED[dtype] = 1 if dtype == torch.float32 else 2
    return REMEMBERED[dtype]


def kept(x):
    if x.device not in KEPT:
        KEPT[x.device] = torch.zeros(1, dtype=x.dtype, device=x.device)
    return KEPT[x.device]


def swallowed():
    try:
        return FAST
    except Exception:
        return True


def quiet():
    with torch.no_grad():
        return torch.is_grad_enabled()


def helper():
    return torch.are_deterministic_algorithms_enabled()


@triton.jit
def kernel(x, y, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def scale(x, factor, block=256):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), factor, BLOCK=block)
    return y


class Cast(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(ctx, x):
        return scale(x, 2.0)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return scale(grad, 2.0)


class Plain(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return scale(x, 2.0)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return scale(grad, 5.0 if torch.are_deterministic_algorithms_enabled() else 6.0)


@torch.library.triton_op("questions::wrapped", mutates_args={})
def wrapped(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.library.wrap_triton(kernel)[(1,)](x, y, x.numel(), 2.0, BLOCK=256)
    return y


@torch.library.custom_op("questions::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    return scale(x, 2.0)


def calls_custom(x):
    return custom(x)
"""
SETTINGS = """
import os

LIMIT = int(os.environ.get("LIMIT", "1"))
level = 1


def wants_speed():
    return os.environ["SPEED"] == "1"
"""
ARGUMENTS = {
    "torch.backends.cuda.matmul.allow_tf32": "asked_allow_tf32",
    "matmul.allow_tf32": "asked_allow_tf32",
    "torch.get_float32_matmul_precision() == 'high'": "asked_float32_matmul_precision",
    "setting() == 'high'": "asked_float32_matmul_precision",
    "torch.backends.cudnn.allow_tf32": "asked_cudnn_allow_tf32",
    "torch.backends.cudnn.benchmark": "asked_cudnn_benchmark",
    "torch.backends.cudnn.deterministic": "asked_cudnn_deterministic",
    "torch.are_deterministic_algorithms_enabled()": "asked_deterministic_algorithms",
    "helper()": "asked_deterministic_algorithms",
    "torch.is_deterministic_algorithms_warn_only_enabled()": "asked_deterministic_warn_only",
    "torch.is_grad_enabled()": "asked_grad_enabled",
    "recording()": "asked_grad_enabled",
    "torch.is_inference_mode_enabled()": "asked_inference_mode",
    "torch.is_autocast_enabled()": "asked_autocast_enabled",
    "torch.get_autocast_dtype('cuda') == torch.bfloat16": "asked_autocast_dtype",
    "torch.get_default_dtype() == torch.bfloat16": "asked_default_dtype",
    "torch.compiler.is_compiling()": "asked_is_compiling",
    "x.requires_grad": "asked_requires_grad_x",
    "getattr(x, 'requires_grad')": "asked_requires_grad_x",
    "any(t.requires_grad for t in (x,))": "asked_requires_grad_x",
    "x.is_leaf": "asked_is_leaf_x",
    "x.is_inference()": "asked_is_inference_x",
}
"""Expression -> the argument of the op."""
PLAIN = [
    "x.is_cuda", "x.device.type == 'cuda'", "x.dtype == torch.float32", "torch.cuda.is_available()",
    "torch.jit.is_scripting()", "torch.is_tensor(x)", "isinstance(x, torch.Tensor)",
    "torch.is_floating_point(x)", "torch.empty_like(x).requires_grad", "quiet()",
    "torch.finfo(x.dtype).bits == 32", "x.element_size() == 4", "CONSTANT == 2.0",
    "CHOICES['fast'] == 1.0", "options.fixed", "remembered(x.dtype) == 1", "math.log2(8) == 3",
    "functools.reduce(lambda a, b: a * b, (1, 2)) == 2", "' '.join(['a', 'b']) == 'a b'",
    "sorted({'b': 1, 'a': 2}) == ['a', 'b']", "print(x.shape) is None",
    "logging.getLogger('a').info('%s', x.shape) is None", "torch.promote_types(x.dtype, x.dtype)",
    "torch.cuda.get_device_properties(0).warp_size == 32", "hasattr(x, 'shape')",
    "torch.cuda.nvtx.range_push('a') is None", "torch.jit.is_tracing()",
]  # fmt: skip
CONDITIONS = {
    "torch.cuda.get_device_capability() >= (9, 0)": "capability()",
    "torch.cuda.get_device_properties(x.device).major >= 9": "capability()",
    "processors() > 100": "sm_count()",
    "count() > 100": "sm_count()",
    "divmod(x.numel(), 256)[1] > 0": "N % 256",
}
"""Expression -> what the conditions of the paths are about."""
REFUSED = {
    "os.environ['SPEED']": "environment variable",
    "'SPEED' in os.environ": "environment variable",
    "environ.get('SPEED')": "environment variable",
    "ask_environment('SPEED')": "environment variable",
    "read()": "environment variable",
    "list(map(os.getenv, ['SPEED']))": "environment variable",
    "wants_speed()": "environment variable",
    "time.time() > 0": "the time",
    "random.random() > 0.5": "random numbers",
    "torch.initial_seed() > 0": "random numbers",
    "dist.is_initialized()": "place among processes",
    "platform.machine() == 'x86_64'": "what system",
    "os.getpid() > 0": "os",
    "os.path.exists('/tmp')": "files",
    "torch.cuda.device_count() > 1": "what GPUs",
    "torch.cuda.current_device() == 0": "the number of the GPU",
    "torch.cuda.get_device_properties(0).L2_cache_size > 0": "`L2_cache_size`",
    "torch.cuda.get_device_properties(0).max_threads_per_multi_processor": "`max_threads_per",
    "torch.cuda.get_device_properties(0).shared_memory_per_block_optin": "shared memory",
    "torch.cuda.memory_allocated() > 0": "state of the GPU",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": "allow_fp16",
    "torch.backends.cuda.flash_sdp_enabled()": "flash_sdp_enabled",
    "torch.get_num_threads() > 1": "get_num_threads",
    "torch.set_grad_enabled(True)": "changes a setting",
    "globals()['FAST']": "interpreter",
    "x.grad is None": "`grad` of a tensor",
    "(x * 2).requires_grad": "gradients of a tensor",
    "sys.getrecursionlimit() > 9": "what system",
    "FAST": "reads `FAST`",
    "swallowed()": "reads `FAST`",
    "TABLE['fast']": "reads `TABLE`",
    "len(FACTORS) > 1": "reads `FACTORS`",
    "options.fast": "reads `options.fast`",
    "getattr(options, 'fast', True)": "reads `options.fast`",
    "Options.shared == 1": "reads `Options.shared`",
    "getattr(plain, 'fast', True)": "reads `plain.fast`",
    "settings.level == 1": "reads `settings.level`",
    "FROM_ENVIRONMENT": "depends on what author.py",
    "BRANCH == 1": "depends on what author.py",
    "settings.LIMIT == 1": "depends on what settings.py",
    "STARTED > 0": "depends on what author.py",
    "kept(x).numel() == 1": "keeps a tensor in `KEPT`",
    "str(x.numel()) == '3'": "the text of a size",
    "2 ** int(math.log(x.numel(), 2)) == 4": "computes `math.log` of a size",
    "math.gcd(x.numel(), 16) == 16": "computes `math.gcd` of a size",
    "x.sum().item() > 0": "what is in a tensor",
    "torch.bincount(x.to(torch.int32)).numel() > 1": "what is in a tensor",
    "kernel.warmup(x, x, 1, 1.0, BLOCK=256, grid=(1,)).n_regs": "`n_regs` of a compiled kernel",
}
"""Expression -> words of the message."""
EXPRESSIONS = [*ARGUMENTS, *CONDITIONS, *REFUSED]
FUNCTIONS = ["Cast", "Plain", "wrapped", "custom", "calls_custom", "constants"]
BLOCKS = {
    # N may be 0.
    "1 << (x.numel() - 1).bit_length()": "next_pow2(max(-N + 1, N - 1) + 1)",
    "2 ** math.ceil(math.log2(x.numel()))": "next_pow2(N)",
}
"""Expression -> the constant of the kernel."""


def author() -> str:
    asking = "".join(
        f"\n\ndef q{at}(x):\n    return scale(x, 2.0 if {expression} else 3.0)\n"
        for at, expression in enumerate(EXPRESSIONS)
    )
    blocks = "".join(
        f"\n\ndef block{at}(x):\n    return scale(x, 2.0, {expression})\n"
        for at, expression in enumerate(BLOCKS)
    )
    sums = "".join(f"    factor += 1.0 if {expression} else 2.0\n" for expression in PLAIN)
    constants = f"\n\ndef constants(x):\n    factor = 0.0\n{sums}    return scale(x, factor)\n"
    return HEAD + asking + blocks + constants


X = {"x": {"shape": ["N"], "dtypes": ["float32"]}}
Answers = dict[str, Any]


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The worker's answer for each expression and function."""
    names = {expression: f"q{at}" for at, expression in enumerate(EXPRESSIONS)}
    names |= {expression: f"block{at}" for at, expression in enumerate(BLOCKS)}
    names |= {name: name for name in FUNCTIONS}
    requests = {
        name: {"function": f"author:{name}", "arguments": X, "random_calls": 0}
        for name in names.values()
    }
    modules = {"author.py": author(), "settings.py": SETTINGS}
    found = worker_answers(modules, requests, tmp_path_factory)
    return {expression: found[name] for expression, name in names.items()}


def traces(answer: dict[str, Any]) -> list[dict[str, Any]]:
    assert "error" not in answer, answer
    return [trace for run in answer["runs"] for trace in run["traces"]]


def factors(answer: dict[str, Any]) -> list[str]:
    good = [trace for trace in traces(answer) if not trace["raises"]]
    return sorted({trace["steps"][0]["arguments"]["factor"]["float"] for trace in good})


def read(answer: dict[str, Any]) -> dict[str, Any]:
    return FunctionReader("f", answer, X, {}).read().to_json()


def called(wrapper: dict[str, Any], *args: Any) -> tuple[str, tuple[Any, ...]]:
    """The op that the function of a wrapper calls, and with what."""
    import torch

    calls: list[tuple[str, tuple[Any, ...]]] = []
    functions: dict[str, Callable[..., Any]] = {}

    class Ops:
        def __getattr__(self, name: str) -> Any:
            return SimpleNamespace(default=lambda *given: calls.append((name, given)))

    names = {
        "ops": Ops(), "torch": torch, "_whole": lambda name, _, op: functions.update({name: op}),
        "_applied": lambda kind: kind, "_recorded": lambda _: lambda kernel: kernel,
        "_fake": lambda _: lambda fake: fake,
    }  # fmt: skip
    exec(wrapper_source(wrapper), names)  # noqa: S102 - what kbuild wrote
    functions["f"](*args)
    return calls[0]


@pytest.mark.parametrize("expression", ARGUMENTS)
def test_an_answer_of_the_process_is_an_argument(answers: Answers, expression: str) -> None:
    answer = answers[expression]
    assert factors(answer) == ["2.0", "3.0"]
    wrapper = read(answer)
    assert ARGUMENTS[expression] in wrapper["forward"]["asked"]
    assert wrapper["schema"] == "f(Tensor x) -> Tensor"
    assert wrapper["forward"]["name"] == "_f_asked"


def test_what_no_program_changes_is_a_constant(answers: Answers) -> None:
    (trace,) = traces(answers["constants"])
    assert (trace["guards"], trace["decisions"], trace["raises"]) == ([], {}, "")


@pytest.mark.parametrize("expression", CONDITIONS)
def test_what_a_launcher_knows_is_a_condition(answers: Answers, expression: str) -> None:
    assert factors(answers[expression]) == ["2.0", "3.0"]
    for trace in traces(answers[expression]):
        assert CONDITIONS[expression] in " ".join(trace["guards"])


@pytest.mark.parametrize("expression", REFUSED)
def test_other_questions_are_refused_at_their_line(answers: Answers, expression: str) -> None:
    answer = answers[expression]
    assert REFUSED[expression] in answer.get("error", "")
    text = author().splitlines()
    file, _, line = answer["place"].rpartition(":")
    assert file.endswith(("author.py", "settings.py"))
    if file.endswith("author.py") and "swallowed" not in expression and "kept" not in expression:
        assert expression in text[int(line) - 1] or "read()" in expression


@pytest.mark.parametrize("expression", BLOCKS)
def test_powers_of_logarithms_are_followed(answers: Answers, expression: str) -> None:
    *_, trace = (trace for trace in traces(answers[expression]) if not trace["raises"])
    assert trace["steps"][0]["constants"]["BLOCK"] == {"int": BLOCKS[expression]}


@pytest.mark.parametrize("name", ["wrapped", "custom", "calls_custom"])
def test_ops_of_torch_are_the_functions_that_they_are_made_of(answers: Answers, name: str) -> None:
    (trace,) = traces(answers[name])
    assert [step["launch"] for step in trace["steps"]] == ["kernel"]


def test_each_call_asks_again(answers: Answers) -> None:
    import torch

    wrapper = read(answers["torch.are_deterministic_algorithms_enabled()"])
    for enabled in (True, False):
        torch.use_deterministic_algorithms(enabled)
        assert called(wrapper, "x") == ("_f_asked", ("x", enabled))
    wrapper = read(answers["torch.is_grad_enabled()"])
    assert called(wrapper, "x") == ("_f_asked", ("x", True))
    with torch.no_grad():
        assert called(wrapper, "x") == ("_f_asked", ("x", False))
    wrapper = read(answers["torch.get_float32_matmul_precision() == 'high'"])
    assert called(wrapper, "x") == ("_f_asked", ("x", torch.get_float32_matmul_precision()))
    wrapper = read(answers["x.requires_grad"])
    tensor = torch.empty(1, requires_grad=True)
    assert called(wrapper, tensor) == ("_f_asked", (tensor, True))


def test_autocast_of_decorators_is_an_argument(answers: Answers) -> None:
    """`custom_fwd` casts where autocast is enabled; where it casts nothing, nothing is asked."""
    steps = {
        trace["decisions"]["asked_autocast_enabled"]: [
            step.get("aten", step.get("launch")) for step in trace["steps"]
        ]
        for trace in traces(answers["Cast"])
    }
    assert steps == {False: ["kernel", "kernel"], True: ["_to_copy", "kernel", "kernel"]}
    assert "asked" not in read(answers["Plain"])["forward"]


def test_a_backward_pass_asks_for_itself(answers: Answers) -> None:
    wrapper = read(answers["Plain"])
    name = "asked_backward_deterministic_algorithms"
    assert [*wrapper["backward"]["asked"]] == [name]
    source = wrapper_source(wrapper)
    assert "_f_backward.default(_grad_out, torch.are_deterministic_algorithms_enabled())" in source
