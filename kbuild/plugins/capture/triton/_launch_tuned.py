"""Kernels with candidates or computed constants, which choose what each launch passes.

kbuild copies this file into packages. It needs Torch and nothing else.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._launch_kernels import OWN_OPTIONS, SCALARS, JITFunction, KernelInterface, LaunchSource, plain
from ._launch_values import Config


class Heuristics(KernelInterface):
    """A kernel with `@triton.heuristics`."""

    def __init__(self, fn: Any, values: Mapping[str, Callable[..., Any]]) -> None:
        self.fn, self.values, self.arg_names = fn, values, fn.arg_names
        self.__name__: str = fn.__name__

    def _completed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        known = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        own = dict(kwargs)
        for name, value in self.values.items():
            own[name] = known[name] = value(known)
        return own

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch with the values that the heuristics compute."""
        if isinstance(self.fn, JITFunction) and self.values.keys() <= {*self.arg_names}:
            self.__dict__["launch"] = LaunchSource(self.fn, self.values).executed()["launch"]
            return self.launch(grid, *args, **kwargs)
        known = dict(zip(self.arg_names, args, strict=False))
        known.update(kwargs)
        for name, value in self.values.items():
            kwargs[name] = known[name] = value(known)
        return self.fn.launch(grid, *args, **kwargs)

    def is_compiled_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """See `KernelInterface.is_compiled_for`."""
        return bool(self.fn.is_compiled_for(args, self._completed(args, kwargs)))


class Autotuner(KernelInterface):
    """A kernel with `@triton.autotune`; launches use the tuned candidate or the first compiled one.

    Candidates' hooks run as with Triton; the tuner's hooks do not, since nothing is measured.
    """

    def __init__(
        self,
        fn: Any,
        configs: Sequence[Config],
        key: Sequence[str],
        prune_configs_by: Mapping[str, Any] | None,
    ) -> None:
        self.fn, self.arg_names, self.keys = fn, fn.arg_names, list(key)
        self.configs = list(configs) or [Config({})]
        self.base_fn = fn
        while not inspect.isfunction(self.base_fn):
            self.base_fn = self.base_fn.fn
        self.early_config_prune = (prune_configs_by or {}).get("early_config_prune")
        self.cache: dict[Any, tuple[Config, dict[str, Any]]] = {}
        self.best_config: Config | None = None
        self.__name__: str = fn.__name__

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch with the candidate of the call's key, chosen on first use."""
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        get = named.get
        key = (
            *[get(name) for name in self.keys],
            *[getattr(get(name), "dtype", None) for name in self._tensors],
        )
        try:
            config, own = self.cache[key]
        except KeyError:
            config, own = self.cache[key] = self._chosen(named, args, kwargs)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**named, **own})
        return self.fn.launch(grid, *args, **kwargs, **own)

    def is_compiled_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """See `KernelInterface.is_compiled_for`."""
        return any(
            self.fn.is_compiled_for(args, {**kwargs, **config.all_kwargs()})
            for config in self.configs
        )

    def _chosen(
        self, named: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Config, dict[str, Any]]:
        configs = self.configs
        if self.early_config_prune is not None:
            nargs = dict(zip(self.arg_names, args, strict=False))
            configs = list(self.early_config_prune(configs, nargs, **kwargs))
        for config in (*self._tuned(configs, named), *configs):
            own = _without_defaults(config)
            if config.pre_hook is not None:  # it may set the block of a descriptor
                config.pre_hook({**named, **own})
            if self.fn.is_compiled_for(args, {**kwargs, **own}):
                return config, own
        return configs[0], _without_defaults(configs[0])

    @property
    def _table(self) -> Mapping[str, Any]:
        function = self.fn
        while not isinstance(function, JITFunction):
            function = function.fn
        return function.table or {"launches": ()}

    @functools.cached_property
    def _tensors(self) -> list[str]:
        """Parameters that are tensors in some launch."""
        arguments = [launch["arguments"] for launch in self._table["launches"]]
        return [
            name
            for name in self.arg_names
            if any(
                kinds.get(name, "none") not in ("none", *SCALARS, "int64") for kinds in arguments
            )
        ]

    def _tuned(self, configs: Sequence[Config], named: Mapping[str, Any]) -> list[Config]:
        """Candidates that were fastest in recorded calls, the nearest call first."""
        rows = self._table.get("tuned", ())
        key = [plain(named.get(name)) for name in self.keys]
        device = _device_name(named.values()) if rows else ""
        rows = [row for row in rows if row["device"] == device] or rows
        nearest = sorted(rows, key=lambda row: _distance(row["key"], key))[:1]
        return [
            config
            for row in nearest
            for config in configs
            if _without_defaults(config) == row["config"]
        ]


def _without_defaults(config: Config) -> dict[str, Any]:
    """Constants and options of a candidate, without those that have no effect."""
    return {
        name: value
        for name, value in config.all_kwargs().items()
        if OWN_OPTIONS.get(name, ...) != value
    }


def _distance(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Distance between two keys, for finding the nearest recorded call."""
    distance = 0.0
    for a, b in zip(left, right, strict=False):
        if isinstance(a, int) and isinstance(b, int):
            distance += abs(math.log2(1 + abs(a)) - math.log2(1 + abs(b)))
        elif a != b:
            distance += 64.0
    return distance


def _device_name(values: Any) -> str:
    for value in values:
        if getattr(value, "is_cuda", False):
            import torch

            return str(torch.cuda.get_device_name(value.device))
    return ""
