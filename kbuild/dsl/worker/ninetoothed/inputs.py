"""Collects the inputs of `ninetoothed.build` for each kernel of a source; nothing is built.

Runs inside the DSL's own environment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kbuild.dsl.worker.protocol import RefusalError

_PREMAKE = "premake"
_OPTIONS = ("num_warps", "num_stages")
_CONFIG_PARTS = 3
_CUDA = (None, "cuda")


class BuildInputs(NamedTuple):
    """The inputs of one kernel."""

    name: str
    premake: Callable[..., Any]
    configs: tuple[tuple[tuple[Any, ...], Mapping[str, Any], Mapping[str, Any]], ...]
    meta_parameters: tuple[str, ...]


class BuildRecorder:
    """Replaces `ninetoothed.build` while a source is imported."""

    def __init__(self) -> None:
        self.calls: list[BuildInputs] = []

    def build(
        self,
        premake: Callable[..., Any],
        configs: Any,
        *,
        meta_parameters: Any = None,
        caller: Any = None,
        kernel_name: Any = None,
        output_dir: Any = None,  # noqa: ARG002
        lazy: Any = False,  # noqa: ARG002
    ) -> Callable[..., Any]:
        """Record the inputs; `output_dir` and `lazy` are ignored."""
        if caller not in _CUDA:
            what = f"`ninetoothed.build` has `caller={caller!r}`"
            raise RefusalError(f"{what}; kbuild makes CUDA images")
        name = kernel_name or inspect.unwrap(_plain(premake)).__name__
        self.calls.append(_inputs(str(name), premake, configs, meta_parameters))
        return _not_here


def _not_here(*_: Any, **__: Any) -> None:
    raise RefusalError(
        "the source calls its kernel while it is imported; put the call under a main guard"
    )


def collect(module: ModuleType, source: Path, calls: list[BuildInputs]) -> list[BuildInputs]:
    """Return the kernels of a source: from its calls of `build`, and from variables with its names.

    `premake`, `configs`, `meta_parameters` and `kernel_name` describe the kernel that is named
    after the file unless `kernel_name` says otherwise; `<name>_premake` and so on describe <name>.
    """
    inputs_by_name = {inputs.name: inputs for inputs in calls}
    for word, premake in vars(module).items():
        prefix = word.removesuffix(_PREMAKE)
        is_named = word == _PREMAKE or (word != prefix and prefix.endswith("_"))
        if callable(premake) and is_named:
            inputs = _of_module(module, prefix, premake, source)
            if inputs is not None:
                inputs_by_name.setdefault(inputs.name, inputs)
    return list(inputs_by_name.values())


def _of_module(
    module: ModuleType, prefix: str, premake: Callable[..., Any], source: Path
) -> BuildInputs | None:
    configs = getattr(module, f"{prefix}configs", None)
    if configs is None:
        return None
    meta = getattr(module, f"{prefix}meta_parameters", None)
    name = getattr(module, f"{prefix}kernel_name", None) or prefix.rstrip("_") or source.stem
    return _inputs(str(name), premake, configs, meta)


def _inputs(name: str, premake: Callable[..., Any], configs: Any, meta: Any) -> BuildInputs:
    if not name.isidentifier():
        raise RefusalError(f"`{name}` cannot be the name of a kernel")
    read = tuple(_config(name, index, config) for index, config in enumerate(configs))
    if not read:
        raise RefusalError(f"`{name}` has no configs")
    names = tuple(meta or ())
    known = inspect.signature(premake).parameters
    for parameter in names:
        if parameter not in known:
            what = f"`meta_parameters` of `{name}` has `{parameter}`"
            raise RefusalError(f"{what}, which `premake` lacks")
    return BuildInputs(name, premake, read, names)


def _config(name: str, index: int, config: Any) -> tuple[Any, Any, Any]:
    where = f"config {index + 1} of `{name}`"
    if not isinstance(config, (tuple, list)) or len(config) != _CONFIG_PARTS:
        raise RefusalError(f"{where} is not `(args, kwargs, compilation_configs)`: {config!r}")
    args, kwargs, options = config
    for option in options:
        if option not in _OPTIONS:
            raise RefusalError(f"{where} sets `{option}`; known: {', '.join(_OPTIONS)}")
    for option, value in options.items():
        if value is not None and type(value) is not int:
            raise RefusalError(f"{where} sets `{option}` to {value!r}, not to a number")
    return tuple(args), dict(kwargs), dict(options)


def _plain(function: Any) -> Any:
    """Return the function inside `functools.partial`."""
    while hasattr(function, "func"):
        function = function.func
    return function
