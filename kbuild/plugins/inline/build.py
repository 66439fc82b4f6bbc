"""Builds the project of a `load_inline`: chooses Torch's headers, and places its errors."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.build.unit.inputs import read_recorded_inputs
from kbuild.dsl.environment import DslEnvironments
from kbuild.loading.request import VariantRequest, torch_folder
from kbuild.loading.variant_build import build_to_load
from kbuild.ops.language import LANGUAGES
from kbuild.plan.project import open_project
from kbuild.plugins.capture.cli import declarations
from kbuild.plugins.capture.session import capture, write_capture
from kbuild.plugins.inline.headers import needs_whole_headers
from kbuild.plugins.inline.project import (
    PYTHON_ALONE,
    python_functions,
    python_sources,
    torch_release,
    write_project,
    write_python_project,
)
from kbuild.plugins.inline.request import ARCHS_VARIABLE, InlineRequest
from kbuild.system.errors import (
    BuildError,
    CheckError,
    ConfigError,
    Problem,
    ToolchainError,
    UsageError,
    install_command,
)
from kbuild.system.file_state import FileState
from kbuild.system.processes import LocalRunner
from kbuild.system.record import Record
from kbuild.system.store import open_store
from kbuild.system.version import Version
from kbuild.system.workspace import WORKSPACE_FOLDER
from kbuild.toolchains.wheels.installer import WheelInstaller

_KERNEL = "inline"
_CALLER = 7
"""Frames from a warning to the caller of `load_inline`."""


def build_captured(
    request: InlineRequest, variant: VariantRequest, cache: Path, torch_release: str
) -> Record:
    """Capture what `request.captures` describes, and build; the other functions stay as they are.

    Raises:
        KbuildError: see `kbuild.load_inline`.
    """
    runner = LocalRunner()
    archs = variant.archs or BACKENDS.get(request.backend).native_archs(runner)
    if not archs:
        raise UsageError(
            "this machine has no GPU that kernels could be compiled for",
            hint='name some, e.g. `archs=["9.0"]`, or leave out `triton_captures`',
        )
    places = _captured_places(request)
    text = _section(request, torch_release, archs, places)
    write_python_project(variant.root, request, places, text)
    project = open_project(variant.root)
    environments = DslEnvironments(WheelInstaller(runner, open_store(cache)))
    left = {}
    for function in declarations(project):
        _, section, declaration = function
        try:
            wrapper, notes = capture(declaration, project.root, section, environments, runner)
        except CheckError as error:
            reason = _labelled(error.message, request)
            if not request.triton_fallback:
                raise CheckError(
                    reason, error.findings, hint=_labelled(error.hint, request)
                ) from None
            left[declaration.name] = reason
        else:
            write_capture(project.root, function, wrapper, notes)
    for reason in left.values():
        message = f"{reason}; Triton compiles its kernels when they are launched"
        warnings.warn(message, RuntimeWarning, stacklevel=_CALLER)
    if left:
        captured = {name: at for name, at in places.items() if name not in left}
        text = _section(request, torch_release, archs, captured)
        write_python_project(variant.root, request, captured, text)
    return build_to_load(variant, cache)


def _captured_places(request: InlineRequest) -> dict[str, int]:
    """The functions that are described, and in which source each is.

    Raises:
        ConfigError: one of them is no function of the module.
    """
    places = python_functions(request)
    for name in request.captures:
        if name not in places:
            hint = f"functions of the module are {', '.join(places) or 'none'}"
            problem = Problem("triton_captures", 0, "", f"there is no function `{name}`", hint)
            raise ConfigError([problem])
    return {name: places[name] for name in request.captures}


def _section(
    request: InlineRequest,
    torch_release: str,
    archs: Collection[str],
    captured: Mapping[str, int],
) -> str:
    import tomlkit

    if not captured:
        return PYTHON_ALONE
    tables = []
    for name, at in captured.items():
        function = {"function": f"triton_sources_{at}:{name}", "name": name}
        tables.append({**json.loads(json.dumps(request.captures[name])), **function})
    key = BACKENDS.get(request.backend).arch_key or ""
    kernel = {
        "backend": request.backend,
        "language": "triton",
        "toolchain": _pin(request),
        "src": list(python_sources(request)),
        key: list(archs),
        "capture": tables,
    }
    document = {"torch": {"stable-abi": torch_release}, "kernel": {_KERNEL: kernel}}
    return f"\n{tomlkit.dumps(document)}"


def _labelled(text: str, request: InlineRequest) -> str:
    """The text with the strings' names instead of the files', and functions without modules."""
    kinds = {
        "cpp_sources": request.cpp,
        "cuda_sources": request.cuda,
        "sycl_sources": request.sycl,
        "triton_sources": request.triton,
    }
    for kind, sources in kinds.items():
        for at in range(len(sources)):
            label = kind if len(sources) == 1 else f"{kind}[{at}]"
            # A line follows: `a.cpp:3`, or `a.cu(3)` of nvcc.
            file = rf"(?:[^\s`]*/)?{kind}_{at}\.(?:cpp|cu|hpp|py)(?=[:(])"
            text = re.sub(file, label, text)
            text = re.sub(rf"`{kind}_{at}:", "`", text)
    return text


def _pin(request: InlineRequest) -> str:
    """The interpreter's own Triton; without one, that of `kbuild aot`."""
    if request.triton_version:
        return f"triton=={request.triton_version}"
    exporter = LANGUAGES.get("triton").exporter()
    return exporter.pin if exporter else ""


_OF_A_HEADER = re.compile(
    r"is not a member of|has not been declared|was not declared|does not name a|incomplete type"
    r"|No such file|has no member|no member named|undeclared|is undefined|no matching|could not"
    r"|no match for|no operator|cannot convert|invalid use|undefined reference|conflicting"
    r"|redefinition|ambiguous|#error|Unresolved extern"
)
"""Errors that a missing header of Torch may cause."""
_UNQUALIFIED = re.compile(r"['\u2018]([a-z]\w*)['\u2019] was not declared in this scope")
_USING = re.compile(r"\busing\s+(?:namespace\s+)?(?:at|torch|c10)\b")


def build_inline(request: InlineRequest, variant: VariantRequest, cache: Path) -> Record:
    """Write the project and build it: with the headers that it needs, or else with all of Torch's.

    Raises:
        KbuildError: see `kbuild.load_inline`.
    """
    torch = torch_folder()
    if torch is None:
        raise ToolchainError("this interpreter has no Torch", hint=install_command("torch"))
    _validate_archs(request, variant, torch)
    if request.captures:
        return build_captured(request, variant, cache, torch_release(torch))
    is_whole = not request.is_stable and needs_whole_headers(request)
    write_project(variant.root, request, torch, is_whole=is_whole)
    try:
        try:
            record = build_to_load(variant, cache)
        except BuildError as error:
            if is_whole or request.is_stable or not _may_lack_header(error, request):
                raise
            # The names in the sources did not show which headers they need: compile with all of
            # Torch's.
            write_project(variant.root, request, torch, is_whole=True)
            record = build_to_load(variant, cache)
    except BuildError as error:
        raise _with_labels(error, request) from None
    observed = {**record.observed, **_headers_read(request, variant.root)}
    return Record(record.answer, observed, record.kbuild)


def _validate_archs(request: InlineRequest, variant: VariantRequest, torch: Path) -> None:
    """Check the archs, which are in no file that a message could name.

    Raises:
        UsageError: there is no such GPU, or the CUDA of this Torch cannot target any of them.
    """
    if not variant.archs:
        return
    backend = BACKENDS.get(request.backend)
    text = (torch / "version.py").read_text("utf-8")
    # The file annotates its names: `cuda: Optional[str] = '13.0'`.
    release = re.search(rf"^{backend.torch_field}\b.*= '(\d+\.\d+)", text, re.MULTILINE)
    try:
        for arch in variant.archs:
            backend.check_gpu_arch(arch)
        backend.archs(variant.archs, Version.parse(release[1]) if release else None)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        value = os.environ.get(ARCHS_VARIABLE, "")
        source = "`archs`" if request.archs else f"the variable {ARCHS_VARIABLE} (`{value}`)"
        raise UsageError(f"{source}: {what}", hint=hint) from None


def _may_lack_header(error: BuildError, request: InlineRequest) -> bool:
    text = "\n".join(error.excerpt)
    sources = (*request.cpp, *request.cuda, *request.sycl)
    # A name without a namespace is the source's own, unless a `using` makes it Torch's.
    if _UNQUALIFIED.search(text) and not any(_USING.search(source) for source in sources):
        return False
    return _OF_A_HEADER.search(text) is not None


def _with_labels(error: BuildError, request: InlineRequest) -> BuildError:
    """The error with the failing line first, and with the strings' names instead of the files'."""
    first, *others = [_labelled(line, request) for line in error.excerpt] or [""]
    if not first:
        return error
    return BuildError(first, excerpt=others, log=error.log, hint=error.hint)


def _headers_read(request: InlineRequest, folder: Path) -> dict[str, FileState]:
    """The headers of `extra_include_paths` that the objects were made from."""
    states: dict[str, FileState] = {}
    if request.include_paths:
        for path in (folder / WORKSPACE_FOLDER).glob("*/tree/CMakeFiles/*.dir/**/*.o"):
            inputs = read_recorded_inputs(str(path)).items()
            states |= {
                name: state for name, state in inputs if name.startswith(request.include_paths)
            }
    return states
