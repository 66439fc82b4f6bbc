"""The fuzz of semantics: ops that kbuild built, and the same calls by the DSL's own launch.

    python tests/gpu/semantics/run.py --cases 150 --seed 1 --save FILE.json

Needs a CUDA GPU (sm_90), Torch 2.11 and Triton 3.6, and the five projects built:

    kbuild build --variant 'torch211-cxx11-cu130-*' --arch 9.0 tests/gpu/semantics/projects/triton

Each case draws tensors that overlap, are empty, misaligned, strided or transposed, calls the op on
them, and its reference on copies of them. Results, and every byte of every storage, must be equal;
or the op refuses in words, and has then touched nothing. Exits with 1 when anything differs.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LANGUAGES = ("triton", "tilelang", "cute", "cutile", "ninetoothed")
CHUNK = 1 << 28
"""Bytes that are compared at once."""
FEWEST = 0.2
"""The share of an op's cases that it may not refuse; with less, the fuzz says nothing of it."""


def load(folder: Path, language: str, variant: str) -> Any:
    """The ops of a project's variant."""
    found = sorted((folder / language / "build").glob(variant))
    if not found:
        sys.exit(f"{folder / language / 'build'} has no {variant}: build it first")
    name = f"semantics_{language}"
    spec = importlib.util.spec_from_file_location(
        name, found[0] / "__init__.py", submodule_search_locations=[str(found[0])]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ops


def cases(language: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """How calls of its ops are drawn, and its calls with huge tensors."""
    from tests.gpu.semantics import calls

    importlib.import_module(f"tests.gpu.semantics.of_{language}")
    own = f"{language}."
    return (
        {name: draw for name, draw in calls.CASES.items() if name.startswith(own)},
        {name: make for name, make in calls.HUGE.items() if name.startswith(own)},
    )


def difference(expected: Any, given: Any, call: Any) -> str:
    """What is different between two tensors, or nothing."""
    import torch

    if (given is None) != (expected is None):
        return f"{expected is not None} and {given is not None} results"
    if given is None:
        return ""
    if (given.shape, given.dtype) != (expected.shape, expected.dtype):
        shapes = f"{list(given.shape)} and {list(expected.shape)}"
        return f"{given.dtype} {shapes} {expected.dtype}"
    if call.tolerance is not None:
        near = torch.isclose(
            given.double(), expected.double(), rtol=call.tolerance, atol=1e-7, equal_nan=True
        )
        return "" if bool(near.all()) else f"{int((~near).sum())} elements beyond the tolerance"
    if call.any_nan and given.dtype.is_floating_point:
        both = given.isnan() & expected.isnan()
        given, expected = given.masked_fill(both, 0), expected.masked_fill(both, 0)
    return bytes_apart(given.contiguous().flatten(), expected.contiguous().flatten())


def bytes_apart(first: Any, second: Any) -> str:
    """Where two tensors of one size differ, or nothing."""
    import torch

    first, second = first.view(torch.uint8), second.view(torch.uint8)
    for at in range(0, len(first), CHUNK):
        wrong = first[at : at + CHUNK] != second[at : at + CHUNK]
        if bool(wrong.any()):
            count, place = int(wrong.sum()), int(wrong.nonzero()[0])
            return f"{count} bytes, the first is byte {at + place} of {len(first)}"
    return ""


def storages(values: Any) -> list[Any]:
    """The memory of every tensor, each once."""
    import torch

    from tests.gpu.semantics.drawing import memory

    found = {}
    for one in values:
        if isinstance(one, torch.Tensor):
            found.setdefault(one.untyped_storage().data_ptr(), memory(one))
    return list(found.values())


def attempt(op: Any, call: Any, *, side: bool, times: int) -> tuple[str, str]:
    """`equal`, `refused`, `differs` or `unanswered` (the reference has no answer), and why.

    Args:
        op: of Torch.
        call: its arguments and what should come out.
        side: call it on a stream that gets its arguments late.
        times: how often.
    """
    import torch

    from tests.gpu.semantics.drawing import copied

    given, untouched = copied(call.args), storages(call.args)
    torch.cuda.synchronize()
    try:
        result = on_side_stream(op, given, untouched, times) if side else repeated(op, given, times)
        torch.cuda.synchronize()
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        if "CUDA error" in said or "AcceleratorError" in type(error).__name__:
            raise
        for before, after in zip(untouched, storages(given), strict=True):
            if apart := bytes_apart(after, before):
                return "differs", f"refused ({said}), but changed {apart}"
        return "refused", said
    own = list(call.args)  # the reference may spend what was drawn
    try:
        expected = repeated(call.reference, own, times)
        torch.cuda.synchronize()
    except Exception as error:
        return "unanswered", f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    if apart := difference(expected, result, call):
        return "differs", f"the result: {apart}"
    for ours, theirs in zip(storages(given), storages(own), strict=True):
        if apart := memory_apart(ours, theirs, given, call):
            return "differs", f"an argument's memory: {apart}"
    return "equal", ""


def memory_apart(ours: Any, theirs: Any, given: Any, call: Any) -> str:
    """The same for storages, whose dtype decides what a NaN is."""
    import torch

    if call.any_nan:
        for one in given:
            if (
                isinstance(one, torch.Tensor)
                and one.untyped_storage().data_ptr() == ours.data_ptr()
            ):
                return difference(theirs.view(one.dtype), ours.view(one.dtype), call)
    return bytes_apart(ours, theirs)


def repeated(op: Any, given: list[Any], times: int) -> Any:
    result = None
    for _ in range(times):
        result = op(*given)
    return result


def on_side_stream(op: Any, given: list[Any], values: list[Any], times: int) -> Any:
    """Call it where other streams would find nothing yet: its arguments come after a while."""
    import torch

    stream = torch.cuda.Stream()
    memories = storages(given)
    for one in memories:
        one.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000)
        for one, value in zip(memories, values, strict=True):
            one.copy_(value)
        try:
            return repeated(op, given, times)
        finally:  # also where it refuses: the values are under way
            stream.synchronize()


def fuzz(arguments: argparse.Namespace) -> dict[str, Any]:
    """All cases of one op."""
    from tests.gpu.semantics.drawing import Draw

    name = arguments.only
    language, _, op_name = name.partition(".")
    op = getattr(load(arguments.folder, language, arguments.variant), op_name)
    draw_call = cases(language)[0][name]
    counts: Counter[str] = Counter()
    words: dict[str, Counter[str]] = {"refused": Counter(), "unanswered": Counter()}
    different = []
    wanted = range(arguments.cases) if arguments.case is None else [arguments.case]
    for index in wanted:
        draw = Draw(f"{arguments.seed}/{name}/{index}")
        call = draw_call(draw)
        side, times = draw.chance(0.2), draw.choose((1, 1, 1, 2))
        try:
            outcome, why = attempt(op, call, side=side, times=times)
        except RuntimeError:  # the device is of no use after that
            outcome, why = "differs", traceback.format_exc(limit=-2)
        counts[outcome] += 1
        if outcome in words:
            words[outcome][re.sub(r"-?\d+", "N", why)[:200]] += 1
        if outcome == "differs":
            numbers = [repr(one) for one in call.args if isinstance(one, (bool, int, float))]
            told = [*draw.words, *numbers, f"{times} calls", "a side stream" * side]
            different.append({"case": index, "why": why, "arguments": told})
            if "CUDA error" in why:
                break
    return {
        "name": name,
        **{key: counts[key] for key in ("equal", "refused", "unanswered", "differs")},
        "refusals": dict(words["refused"].most_common()),
        "without_reference": dict(words["unanswered"].most_common(5)),
        "different": different[:10],
    }


def beyond(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The calls with huge tensors of one language."""
    import torch

    language = arguments.huge
    ops = load(arguments.folder, language, arguments.variant)
    found = []
    for name, make in cases(language)[1].items():
        began = time.perf_counter()
        torch.manual_seed(arguments.seed)
        op = getattr(ops, name.partition(":")[0].partition(".")[2])
        try:
            outcome, why = attempt(op, make(), side=False, times=1)
        except torch.OutOfMemoryError:
            outcome, why = "skipped", "too little memory"
        except RuntimeError:
            outcome, why = "differs", traceback.format_exc(limit=-2)
        gc.collect()
        if "CUDA error" not in why:
            torch.cuda.empty_cache()
        seconds = round(time.perf_counter() - began, 1)
        found.append({"name": name, "outcome": outcome, "why": why[:400], "seconds": seconds})
        if "CUDA error" in why:
            break
    return found


def child(arguments: argparse.Namespace, *more: str) -> Any:
    """This program in a process of its own: what breaks the device breaks nothing else."""
    command = [sys.executable, __file__, "--seed", str(arguments.seed), *more]
    command += ["--cases", str(arguments.cases), "--variant", arguments.variant]
    command += ["--folder", str(arguments.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    lines = done.stdout.splitlines()
    if lines and lines[-1].startswith(("{", "[")):
        return json.loads(lines[-1])
    return {"name": " ".join(more), "crashed": done.returncode, "said": done.stderr[-2000:]}


def everything(arguments: argparse.Namespace) -> dict[str, Any]:
    """All ops, several at once, and then the huge calls, one after the other."""
    import torch
    import triton

    languages = arguments.language or LANGUAGES
    names = [name for language in languages for name in cases(language)[0]]
    began = time.perf_counter()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        ops = list(pool.map(lambda name: child(arguments, "--only", name), names))
    large: list[Any] = []
    if not arguments.no_huge:
        for language in languages:
            answer = child(arguments, "--huge", language)
            large += answer if isinstance(answer, list) else [answer]
    tested = [one for one in ops if "crashed" not in one]
    few = [one["name"] for one in tested if one["equal"] < FEWEST * arguments.cases]
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "ninetoothed": importlib.util.find_spec("ninetoothed") is not None,
        "seed": arguments.seed,
        "seconds": round(time.perf_counter() - began, 1),
        "comparisons": sum(one["equal"] + one["differs"] for one in tested),
        "refused": sum(one["refused"] for one in tested),
        "without_reference": sum(one["unanswered"] for one in tested),
        "differ": sum(one["differs"] for one in tested)
        + sum(one.get("outcome") == "differs" for one in large),
        "crashed": [one["name"] for one in (*ops, *large) if "crashed" in one],
        "skipped": [one["name"] for one in large if one.get("outcome") == "skipped"],
        "hardly_tested": few,
        "ops": ops,
        "huge": large,
    }


def main() -> int:
    """Run what is asked for; 1 when anything differs, crashed or was hardly tested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=150, help="of each op")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 12))
    parser.add_argument("--language", action="append", choices=LANGUAGES)
    parser.add_argument("--variant", default="torch211-cxx11-cu130-x86_64-linux")
    parser.add_argument(
        "--folder", type=Path, default=HERE / "projects", help="with the built projects"
    )
    parser.add_argument("--no-huge", action="store_true")
    parser.add_argument("--save", type=Path, help="write the answer there as JSON")
    parser.add_argument("--only", help="one op, `triton.axpy`")
    parser.add_argument("--case", type=int, help="of `--only`, one case")
    parser.add_argument("--huge", choices=LANGUAGES, help="only the huge calls of a language")
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE.parents[2]))
    if arguments.only or arguments.huge:
        print(json.dumps(fuzz(arguments) if arguments.only else beyond(arguments)))
        return 0
    answer = everything(arguments)
    if arguments.save:
        arguments.save.write_text(json.dumps(answer, indent=1) + "\n")
    for one in answer["ops"]:
        print(json.dumps({key: one[key] for key in one if key not in ("different", "refusals")}))
    for one in (*answer["ops"], *answer["huge"]):
        if one.get("different") or one.get("outcome") == "differs" or "crashed" in one:
            print(json.dumps(one, indent=1)[:4000])
    print(json.dumps({key: answer[key] for key in answer if key not in ("ops", "huge")}, indent=1))
    return int(bool(answer["differ"] or answer["crashed"] or answer["hardly_tested"]))


if __name__ == "__main__":
    sys.exit(main())
