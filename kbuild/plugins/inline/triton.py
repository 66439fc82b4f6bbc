"""Builds a `load_inline` of Triton functions ahead of time: captured where they can be."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.dsl.environment import DslEnvironments
from kbuild.loading.request import VariantRequest
from kbuild.loading.variant_build import build_to_load
from kbuild.ops.language import LANGUAGES
from kbuild.plan.project import open_project
from kbuild.plugins.capture.cli import declarations
from kbuild.plugins.capture.session import capture, write_capture
from kbuild.plugins.inline.project import general_text, python_functions
from kbuild.plugins.inline.request import InlineRequest
from kbuild.system.errors import CheckError, ConfigError, Problem, UsageError
from kbuild.system.files import FileSet
from kbuild.system.processes import LocalRunner
from kbuild.system.record import Record
from kbuild.system.store import open_store
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
    _write_project(variant.root, request, torch_release, archs, places)
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
        text = f"{reason}; Triton compiles its kernels when they are launched"
        warnings.warn(text, RuntimeWarning, stacklevel=_CALLER)
    if left:
        captured = {name: at for name, at in places.items() if name not in left}
        _write_project(variant.root, request, torch_release, archs, captured)
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


def _write_project(
    folder: Path,
    request: InlineRequest,
    torch_release: str,
    archs: Collection[str],
    captured: Mapping[str, int],
) -> None:
    package = f"torch-ext/{request.python_name}"
    others = {name: at for name, at in python_functions(request).items() if name not in captured}
    sources = {f"triton_sources_{at}.py": text for at, text in enumerate(request.triton)}
    texts = {f"{package}/{name}": text for name, text in sources.items()} if others else {}
    build = general_text(request)
    if captured:
        texts |= sources
        build += _section(request, torch_release, archs, captured, list(sources))
    else:
        build += "\n[torch-noarch]\n"
    lines = [f'"""`{request.name}`, written by `kbuild.load_inline`."""', ""]
    lines += ["from ._ops import ops"] if captured else []
    lines += [f"from ._captured import {name}" for name in captured]
    lines += [f"from .triton_sources_{at} import {name}" for name, at in others.items()]
    lines += ["", f"__all__ = {json.dumps([*captured, *others])}", ""]
    texts |= {"build.toml": build, f"{package}/__init__.py": "\n".join(lines)}
    FileSet(texts).write(folder, force=True)


def _section(
    request: InlineRequest,
    torch_release: str,
    archs: Collection[str],
    captured: Mapping[str, int],
    sources: list[str],
) -> str:
    import tomlkit

    tables = []
    for name, at in captured.items():
        function = {"function": f"triton_sources_{at}:{name}", "name": name}
        tables.append({**json.loads(json.dumps(request.captures[name])), **function})
    key = BACKENDS.get(request.backend).arch_key or ""
    kernel = {
        "backend": request.backend,
        "language": "triton",
        "toolchain": _pin(request),
        "src": sources,
        key: list(archs),
        "capture": tables,
    }
    document = {"torch": {"stable-abi": torch_release}, "kernel": {_KERNEL: kernel}}
    return f"\n{tomlkit.dumps(document)}"


def _labelled(text: str, request: InlineRequest) -> str:
    """The text with the strings' names instead of the files', and functions without modules."""
    for at, source in enumerate(request.labelled_triton):
        text = re.sub(rf"(?:[^\s`]*/)?triton_sources_{at}\.py(?=:)", source.label, text)
        text = re.sub(rf"`triton_sources_{at}:", "`", text)
    return text


def _pin(request: InlineRequest) -> str:
    """The interpreter's own Triton; without one, that of `kbuild aot`."""
    if request.triton_version:
        return f"triton=={request.triton_version}"
    exporter = LANGUAGES.get("triton").exporter()
    return exporter.pin if exporter else ""
