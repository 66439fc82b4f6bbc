"""Runs the worker that captures a function, and reads its answer."""

from __future__ import annotations

import importlib.util
import json
import os
import posixpath
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kbuild.dsl.devices import device_facts, vendor_facts
from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.language import LANGUAGES, Language
from kbuild.ops.section import DslSection
from kbuild.ops.unit import ImageTarget
from kbuild.plugins.capture.description import (
    Declaration,
    description_text,
    kernels_file,
    op_names,
    with_names,
    with_own_kernels,
    wrapper_file,
)
from kbuild.plugins.capture.functions import FunctionReader
from kbuild.plugins.capture.languages import captured_language
from kbuild.plugins.capture.launches import module_of
from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.values import ROWS, names_of
from kbuild.plugins.capture.verification import RandomCalls
from kbuild.plugins.capture.wrappers import CapturedWrapper, captured_kernel
from kbuild.system.errors import CheckError, UsageError
from kbuild.system.files import replace_atomically
from kbuild.system.processes import LineListener, Runner
from kbuild.system.temporary import temporary_folder

_PACKAGE = Path(__file__).resolve().parents[3]
_CAPABILITY = re.compile(r"(\d+)\.(\d)")
_PRODUCT = re.compile(r"\w+(?: \* \w+)+")
_SECONDS = 600
"""Seconds after which the capture of one function is aborted."""
# The first is what is written: with two dimensions, their product is neither of them.
_BATCHES = (2, 1, 3)
"""Numbers of dimensions that `...` is tried with; the ops of all must be the same."""


def source_of(declaration: Declaration, sources: Sequence[str]) -> str:
    """The source that has the function.

    Raises:
        UsageError: none of the section's is that module.
    """
    module = declaration.function.partition(":")[0]
    for source in sources:
        if module_of(source) == module:
            return source
    hint = "list its file in `src`"
    raise UsageError(f"no source is the module `{module}` of `{declaration.function}`", hint=hint)


def capture(
    declaration: Declaration,
    root: Path,
    section: DslSection,
    environments: DslEnvironments,
    runner: Runner,
    *,
    listen: LineListener | None = None,
    torch: Path | None = None,
) -> tuple[CapturedWrapper, tuple[str, ...]]:
    """Capture a function: its ops, and sentences about conditions that were not proven.

    Args:
        declaration: the table.
        root: the project.
        section: the kernel's.
        environments: has its compiler.
        runner: runs the worker.
        listen: gets what the worker prints: a line with `PATH_WALKED` after each path.
        torch: the folder with the package `torch`; that of this interpreter when None.

    Raises:
        UsageError: there is no Torch here, no source has the function, or no GPU is named.
        CheckError: the function cannot be captured.
    """
    source = source_of(declaration, section.sources)
    language = LANGUAGES.get(section.language)
    if not captured_language(section.language).captured_as:
        raise _refusal(declaration, root / source, language, root)
    env = _environment(root, section, environments, torch)
    names = op_names(declaration)
    declaration = with_names(declaration, names)
    request = _request(declaration, root, section, names)
    shapes = [described.get("shape", ()) for described in declaration.arguments.values()]
    batches = _BATCHES if any("..." in shape for shape in shapes) else _BATCHES[:1]
    requests = [{**request, "batch": batch} for batch in batches]
    ask = partial(_answers, declaration, env=env, root=root, runner=runner, listen=listen)
    answers, results = ask(requests), []
    for at, own in enumerate(requests):
        if devices := _devices(section, answers[at]):
            answers[at] = _answer_by_device(own, devices, ask)
        results.append(_read(declaration, answers[at], own["batch"], root))
    # All are the same, or this is an error below.
    wrapper, notes = results[0]
    wrapper = replace(wrapper, renamed={other: name for name, other in names.items()})
    _validate(declaration, wrapper, section, root, answers[-1])
    if len({_comparable(other) for other, _ in results}) > 1:
        message = f"`{declaration.function}` does something else for each number of dimensions"
        raise CheckError(message, (), hint="name the dimensions in `shape`, in place of `...`")
    return wrapper, notes


def _request(
    declaration: Declaration, root: Path, section: DslSection, names: Mapping[str, str]
) -> dict[str, Any]:
    """A request to the worker, without its batch.

    Raises:
        UsageError: the section names no GPU, and its language needs one.
    """
    captured = captured_language(section.language)
    folders = [str((root / source).resolve().parent) for source in section.sources]
    targets = _targets(section) if captured.calls else []
    # Sizes of ordinary calls.
    examples = {
        name: min(max(4096, least), most) for name, (least, most) in declaration.sizes.items()
    }
    if captured.calls:
        if not targets:
            message = f"`{section.language}` kernels are captured for the GPUs that a section names"
            raise UsageError(message, hint='write `cuda-capabilities = ["8.0", "9.0"]`')
        examples = {**_usual_sizes(declaration), **examples}
    return {
        "function": declaration.function,
        "arguments": declaration.arguments,
        "sizes": declaration.sizes,
        "examples": examples,
        "backward": declaration.backward,
        "folders": [*dict.fromkeys(folders)],
        "names": names,
        "generated": captured.captured_as != section.language,
        "calls": captured.calls,
        "device": vendor_facts("cuda"),
        "targets": targets,
    }


def _usual_sizes(declaration: Declaration) -> dict[str, int]:
    """Sizes of an ordinary call, for languages whose code is chosen by one: large in the end."""
    shapes = [described.get("shape", ()) for described in declaration.arguments.values()]
    names = dict.fromkeys(n for shape in shapes for n in shape if isinstance(n, str) and n != "...")
    last = {shape[-1] for shape in shapes if shape}
    return {n: 64 * at + (4096 if n in last else 32) for at, n in enumerate(names)}


def _validate(
    declaration: Declaration,
    wrapper: CapturedWrapper,
    section: DslSection,
    root: Path,
    answer: Mapping[str, Any],
) -> None:
    """Check the ops as a build would.

    Raises:
        CheckError: a build would refuse them.
    """
    known = {*answer["kernels"]} or {str((root / one).resolve()) for one in section.sources}
    for run in answer["runs"]:
        for step in (step for trace in run["traces"] for step in trace["steps"]):
            file = step.get("file", "")
            if file and not known & {file, str(Path(file).resolve())}:
                what = (
                    "no kernel of the section's language" if answer["kernels"] else "not in `src`"
                )
                message = f"launches `{step['launch']}` of {file}, which is {what}"
                raise CheckError(_message(declaration, message, step["line"], root), ())
    kernel = captured_kernel("", section, wrapper.to_json()["ops"], wrapper.name)
    if kernel.section.issues:
        issue = kernel.section.issues[0]
        place = f"{answer['source']}:{answer['line']}"
        message = f"becomes an op that no build takes: {issue.message}"
        raise CheckError(_message(declaration, message, place, root), (), hint=issue.hint)


def write_capture(
    root: Path,
    function: tuple[str, DslSection, Declaration],
    wrapper: CapturedWrapper,
    notes: Sequence[str],
) -> tuple[str, Mapping[str, Any]]:
    """Write the description of a function of a kernel, and the kernels that a DSL wrote for it.

    Returns:
        The file, relative to the project, and what it says of the function.
    """
    kernel, section, declaration = function
    source, content = source_of(declaration, section.sources), wrapper.to_json()
    texts = {path: (root / path).read_text("utf-8") for path in section.sources}
    file = wrapper_file(kernel, declaration.name)
    if wrapper.kernels:
        replace_atomically(root / kernels_file(kernel, declaration.name), wrapper.kernels.encode())
    text = description_text(declaration, content, source, texts, notes)
    replace_atomically(root / file, text.encode())
    return file, content


def _environment(
    root: Path, section: DslSection, environments: DslEnvironments, torch: Path | None
) -> dict[str, str]:
    """The worker's environment variables: its modules, and no GPU."""
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        torch = Path(spec.origin).parents[1]
    if torch is None:
        release = ".".join(map(str, sys.version_info[:2]))
        raise UsageError(
            "`kbuild capture` runs the function with Torch, which is missing",
            hint=f"`pip install torch` into an environment with Python {release}, and activate it",
        )
    own = {section.language: tuple(section.toolchain)}
    compilers = [
        environments.provide(name, LANGUAGES.get(name).environment(pins, "cuda13"))
        for name, pins in (own | captured_language(section.language).worker_pins).items()
    ]
    roots = [_import_root(str((root / source).resolve()), source) for source in section.sources]
    # The order decides: the pinned compiler hides another release of it that lies beside Torch.
    places = (*roots, *(str(one.root) for one in compilers), str(_PACKAGE), str(torch))
    return {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(places)),
        "CUDA_VISIBLE_DEVICES": "",
        **({"PYTHONDONTWRITEBYTECODE": "1"} if sys.dont_write_bytecode else {}),
    }


def _answers(
    declaration: Declaration,
    requests: Sequence[Mapping[str, Any]],
    env: Mapping[str, str],
    root: Path,
    runner: Runner,
    *,
    listen: LineListener | None,
) -> list[Mapping[str, Any]]:
    """Run the worker and return its answers."""
    command = (sys.executable, "-m", "kbuild.plugins.capture.worker.request")
    with temporary_folder("capture") as folder:
        # The answers come in files, because the author's code may print anything.
        files = [folder / f"answer-{at}.json" for at in range(len(requests))]
        text = json.dumps([
            {**request, "answer": str(file), "seconds": _SECONDS}
            for request, file in zip(requests, files, strict=True)
        ])  # fmt: skip
        own = {"HOME": str(folder), "TMPDIR": str(folder)}
        done = runner.run(command, cwd=root, env={**env, **own}, stdin=text, listen=listen)
        if all(file.is_file() for file in files):
            return [json.loads(file.read_text("utf-8")) for file in files]
    head = f"`{declaration.function}` was not captured"
    # The worker sets an alarm for the seconds of the request.
    is_late = done.returncode == -signal.SIGALRM
    reason = f"after {_SECONDS} s" if is_late else "the worker ended"
    raise CheckError(f"{head}: {reason}", (), hint=done.output[-2000:])


def _devices(section: DslSection, answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The GPUs that a function is captured for one by one, as its worker needs them.

    Those are all archs where modules ask for them on import, and AMD's GPUs apart from NVIDIA's
    where the function asks whose the GPU is.
    """
    backends = section.table.get("backend", ())
    if answer.get("asked_vendor") and "rocm" in backends:
        amd = {"hip": 1, **vendor_facts("hip")}
        return [vendor_facts("cuda"), amd] if "cuda" in backends else [amd]
    if not answer.get("asked"):
        return []
    return _targets(section)


def _targets(section: DslSection) -> list[Mapping[str, Any]]:
    """The GPUs that the section names."""
    matches = map(_CAPABILITY.match, section.table.get("cuda-capabilities", ()))
    archs = dict.fromkeys(f"sm_{match[1]}{match[2]}" for match in matches if match)
    return [{**device_facts(ImageTarget.parse(arch), ""), **vendor_facts("cuda")} for arch in archs]


def _answer_by_device(
    request: Mapping[str, Any],
    devices: Sequence[Mapping[str, Any]],
    ask: Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]],
) -> Mapping[str, Any]:
    """Ask the worker for each GPU, until all agree on contiguous tensors, and join the answers."""
    contiguous: set[str] = set()
    differentiated = False
    while True:
        more = {"contiguous": sorted(contiguous), "differentiated": differentiated}
        answers = ask([{**request, "device": device, **more} for device in devices])
        for answer in answers:
            if "error" in answer:
                return answer
        needed = {name for answer in answers for name in answer["contiguous"]}
        are_differentiated = any(answer["differentiated"] for answer in answers)
        if needed <= contiguous and are_differentiated == differentiated:
            break
        # What one GPU's paths need must hold for all of them: the op has one schema. Ask again.
        contiguous, differentiated = needed, are_differentiated
    keys = ("runs", "samples", "notes")
    lists = {key: [x for answer in answers for x in answer.get(key, ())] for key in keys}
    kernels = {f: text for answer in answers for f, text in answer.get("kernels", {}).items()}
    return {**answers[0], **lists, "kernels": kernels}


def _comparable(wrapper: CapturedWrapper) -> str:
    """Text of the ops for comparison: a single batch dimension counts as the product of all."""
    texts = []
    for op in wrapper.to_json()["ops"]:
        rows = op.get("let", {}).get(ROWS, ROWS)
        # Shapes repeat the expression that `let` gives a name to.
        text = json.dumps(op).replace(rows, ROWS).replace('"..."', f'"{ROWS}"')
        # The order of factors follows from names.
        texts.append(_PRODUCT.sub(lambda m: " * ".join(sorted(m[0].split(" * "))), text))
    return "\n".join(texts)


def _read(
    declaration: Declaration, answer: Mapping[str, Any], batch: int, root: Path
) -> tuple[CapturedWrapper, tuple[str, ...]]:
    if "error" in answer:
        raise CheckError(_message(declaration, answer["error"], answer["place"], root), ())
    answer = with_own_kernels(answer)
    defaults = {
        name: default
        for name, default in answer["defaults"].items()
        if name in declaration.arguments and "shape" not in declaration.arguments[name]
    }
    reader = FunctionReader(
        declaration.name, answer, declaration.arguments, declaration.sizes,
        {**defaults, **declaration.defaults}, batch,
    )  # fmt: skip
    try:
        wrapper = reader.read()
        calls = RandomCalls(wrapper, reader.described, answer["parameters"], batch)
        refusals = calls.refusals(reader.answer["samples"])
    except CaptureError as error:
        raise CheckError(_message(declaration, error.message, error.place, root), ()) from None
    # Only the last condition of each is the one that no call meets; the others lead to it.
    unproven = {conditions[-1] for run in answer["runs"] for conditions in run["unproven"]}
    notes = [
        f"no call was found with {text.removeprefix('not ')} false: such a call is refused"
        for text in sorted(unproven)
        if names_of(text) != {"capability()"}  # GPUs that there are not yet are refused
    ]
    if dropped := sum(run["dropped"] for run in answer["runs"]):
        message = f"has too many paths: {dropped} more were not followed"
        hint = "narrow the `sizes`, or declare fewer `choices` and `dtypes`"
        raise CheckError(_message(declaration, message, "", root), (), hint=hint)
    kernels = dict.fromkeys(text.strip() for text in answer.get("kernels", {}).values())
    wrapper = replace(wrapper, kernels="\n\n".join(kernels) + "\n" * bool(kernels))
    return wrapper, (*dict.fromkeys(answer.get("notes", ())), *notes, *refusals)


def _refusal(declaration: Declaration, file: Path, language: Language, root: Path) -> CheckError:
    """The error for a language whose kernels are not captured."""
    text = file.read_text("utf-8", "replace")
    name = re.escape(declaration.attribute)
    match = re.search(rf"^(?:class|def|async def)\s+{name}\b", text, re.MULTILINE)
    line = text.count("\n", 0, match.start()) + 1 if match else 1
    message = f"launches `{language.name}` kernels, which cannot be captured"
    place = f"{file.resolve()}:{line}"
    text = _message(
        declaration, f"{message}: {captured_language(language.name).refusal}", place, root
    )
    return CheckError(text, (), hint="describe its launches in `[[kernel.<name>.op]]`")


def _message(declaration: Declaration, message: str, place: str, root: Path) -> str:
    where = place.removeprefix(f"{root.resolve()}/")
    return (
        f"{where}: `{declaration.function}` {message}"
        if where
        else f"`{declaration.function}`: {message}"
    )


def _import_root(path: str, source: str) -> str:
    """The folder that a source is imported from."""
    module = module_of(source).replace(".", "/")
    for end in (f"/{module}.py", f"/{module}/__init__.py"):
        if path.endswith(end):
            return path.removesuffix(end)
    return posixpath.dirname(path)
