"""Builds the project of a `load_inline`: chooses Torch's headers, and places its errors."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.build.unit.inputs import read_recorded_inputs
from kbuild.loading.request import VariantRequest, torch_folder
from kbuild.loading.variant_build import build_to_load
from kbuild.plugins.inline.headers import needs_whole_headers
from kbuild.plugins.inline.project import torch_release, write_project
from kbuild.plugins.inline.request import ARCHS_VARIABLE, InlineRequest
from kbuild.system.errors import BuildError, ToolchainError, UsageError, install_command
from kbuild.system.file_state import FileState
from kbuild.system.record import Record
from kbuild.system.version import Version
from kbuild.system.workspace import WORKSPACE_FOLDER

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
        from kbuild.plugins.inline.triton import build_captured

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
        raise _with_labels(error, request, variant.root) from None
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
    if _UNQUALIFIED.search(text) and not any(_USING.search(source) for source in sources):
        return False
    return _OF_A_HEADER.search(text) is not None


def _with_labels(error: BuildError, request: InlineRequest, folder: Path) -> BuildError:
    """The error with the failing line first, and with the strings' names instead of the files'."""
    first, *others = [_labelled_line(line, request, folder) for line in error.excerpt] or [""]
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


def _labelled_line(text: str, request: InlineRequest, folder: Path) -> str:
    """A line of a compiler with the strings' names instead of the files'."""
    for kind, count in (
        ("cpp_sources", len(request.cpp)),
        ("cuda_sources", len(request.cuda)),
        ("sycl_sources", len(request.sycl)),
    ):
        for at in range(count):
            label = kind if count == 1 else f"{kind}[{at}]"
            pattern = rf"(?:{re.escape(str(folder))}/|/kernel/)?src/{kind}_{at}\.(?:cpp|cu|hpp)"
            text = re.sub(pattern, label, text)
    return text
