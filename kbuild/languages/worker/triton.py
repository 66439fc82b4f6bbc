"""Triton's compiler, asked without a GPU."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton  # type: ignore[import-not-found]
from kbuild.languages.worker import parameters, standin
from kbuild.languages.worker.functions import Kernel, Known, Unknown, kernels
from kbuild.languages.worker.protocol import Refusal
from kbuild.languages.worker.sources import Shelf, Sources
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]
from triton.compiler import ASTSource  # type: ignore[import-not-found]

_DIVISIBILITY = [["tt.divisibility", 16]]
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_AMD_REGISTERS = re.compile(r"\.vgpr_count:\s+(\d+)")
_AMD_SPILLS = re.compile(r"\.vgpr_spill_count:\s+(\d+)")
_AROUND = 3
"""Lines of the source that an error shows before its own."""


class Compiler:
    """See `protocol.Answering`."""

    def __init__(self, environment: str) -> None:
        del environment  # it is on the path
        standin.stand_in()
        _forget_key()
        triton.runtime.driver.set_active(_NoDevice())
        self._shelf = Shelf()

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.Answering`."""
        sources = self._shelf.get(request)
        found = self._kernels(sources)
        return {"functions": [kernel.describe() for kernel in found.values()]}

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.Answering`."""
        sources = self._shelf.get(request)
        found = self._kernels(sources)
        kernel = found.get(request["function"])
        if kernel is None:
            raise Refusal(f"`{sources.first}` has no kernel function `{request['function']}`")
        unit = _Unit(kernel, request)
        compiled, said = self._compiled(unit, sources)
        code, facts = unit.image(compiled, said)
        Path(request["output"]).write_bytes(code)
        return facts

    def _kernels(self, sources: Sources) -> Mapping[str, Kernel]:
        return kernels(sources.main(), sources.owns)

    def _compiled(self, unit: _Unit, sources: Sources) -> tuple[Any, str]:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                return unit.compiled(), said.getvalue()
        except Refusal:
            raise
        except Exception as error:
            raise _explained(error, unit.kernel, sources) from error
        finally:
            shutil.rmtree(os.environ["TRITON_CACHE_DIR"], ignore_errors=True)


class _Unit:
    """One compilation."""

    def __init__(self, kernel: Kernel, request: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self._target = request["target"]
        self._options = {**request["options"]}
        if "ptx_version" in self._target:
            self._options["ptx_version"] = self._target["ptx_version"]
        self._types: Mapping[str, str] = request["types"]
        unspecialised = {one.name for one in kernel.jit.params if one.do_not_specialize}
        misaligned = {
            one.name
            for one in kernel.jit.params
            if getattr(one, "do_not_specialize_on_alignment", False)
        }
        self.ones = [name for name in request["ones"] if name not in unspecialised]
        skipped = unspecialised | misaligned | {*self.ones}
        self.divisible = [name for name in request["divisible"] if name not in skipped]
        self.constants = self._completed(request["constants"])

    @property
    def arguments(self) -> list[str]:
        """Arguments of the compiled function, in order."""
        names = self.kernel.jit.arg_names
        return [name for name in names if name in self._types and name not in self.ones]

    def compiled(self) -> Any:
        """Run Triton's compiler."""
        names = self.kernel.jit.arg_names
        constants = {**self.constants, **dict.fromkeys(self.ones, 1)}
        kept = self.arguments
        signature = {name: self._types[name] if name in kept else "constexpr" for name in names}
        attributes = {(names.index(name),): _DIVISIBILITY for name in self.divisible}
        values = {(names.index(name),): _value(value) for name, value in constants.items()}
        source = ASTSource(self.kernel.jit, signature, values, attributes)
        target = GPUTarget(self._target["backend"], self._target["arch"], self._target["warp"])
        return triton.compile(source, target=target, options=self._options)

    def image(self, compiled: Any, said: str) -> tuple[bytes, dict[str, Any]]:
        """The code, and what a launcher must know of it."""
        facts = compiled.metadata._asdict()
        kind = self._target["kind"]
        code = compiled.asm[kind]
        ctas = facts.get("num_ctas") or 1
        return code if isinstance(code, bytes) else code.encode(), {
            "kind": kind,
            "entry": facts["name"],
            "parameters": self._parameters(compiled),
            "shared": facts["shared"],
            "threads": facts["num_warps"] * self._target["warp"],
            "cluster": [ctas, 1, 1],
            "tensor_maps": [],
            "scratch": facts.get("global_scratch_size") or 0,
            "scratch_align": facts.get("global_scratch_align") or 1,
            "profile_scratch": facts.get("profile_scratch_size") or 0,
            "pdl": bool(facts.get("launch_pdl")),
            "cooperative": bool(facts.get("launch_cooperative_grid")),
            **self._resources(compiled, said),
            "constants": {name: _plain(value) for name, value in self.constants.items()},
            "divisible": self.divisible,
            "ones": self.ones,
            "types": {name: self._types[name] for name in self._types},
        }

    def _parameters(self, compiled: Any) -> list[dict[str, str]]:
        expected = [parameters.parameter(name, self._types[name]) for name in self.arguments]
        if self._target["backend"] == "hip":
            return parameters.joined(expected, parameters.of_amdgcn(compiled.asm["amdgcn"]))
        return parameters.joined(expected, parameters.of_ptx(compiled.asm["ptx"]))

    def _resources(self, compiled: Any, said: str) -> dict[str, int | None]:
        if self._target["backend"] == "hip":
            text, patterns = compiled.asm["amdgcn"], (_AMD_REGISTERS, _AMD_SPILLS)
        else:
            text, patterns = said, (_REGISTERS, _SPILLS)
        if self._target["kind"] == "ptx":  # the driver decides
            return {"registers": None, "spills": None}
        numbers = [match and int(match[1]) for match in (one.search(text) for one in patterns)]
        return {"registers": numbers[0], "spills": numbers[1]}

    def _completed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """With defaults and heuristics for what nobody said."""
        jit = self.kernel.jit
        constants = {name: _value(value) for name, value in given.items()}
        missing = [
            one for one in jit.params if one.name not in constants and one.name not in self._types
        ]
        computed = self._computed({one.name for one in missing}, constants)
        constants |= computed
        for one in missing:
            if one.name in computed:
                continue
            if one.default is one._param.empty:  # noqa: SLF001 - nothing public tells
                raise Refusal(f"`{jit.__name__}`: nothing says what `{one.name}` is")
            constants[one.name] = one.default
        return constants

    def _computed(self, missing: set[str], constants: Mapping[str, Any]) -> dict[str, Any]:
        known = Known({**constants, **self._options, **dict.fromkeys(self.ones, 1)})
        known.update({name: _Tensor(name) for name, t in self._types.items() if t[0] == "*"})
        found: dict[str, Any] = {}
        for values in self.kernel.heuristics:
            for name, function in values.items():
                if name in missing:
                    found[name] = known[name] = self._evaluated(name, function, known)
        return found

    def _evaluated(self, name: str, function: Any, known: Known) -> Any:
        try:
            return function(known)
        except Unknown as unknown:
            raise Refusal(
                f"`{name}` of `{self.kernel.name}` is computed by @triton.heuristics from "
                f"`{unknown.name}`, which only a call knows",
                hint=f'write it as an expression: `constants = {{ {name} = "..." }}`',
            ) from None


class _Tensor:
    """A tensor in a heuristic: it is there, and nothing else is known."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        raise Unknown(f"{self._name}.{name}")


class _NoDevice:
    """Stands for a driver where something asks for one."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        del device
        return 0

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 80, 32)

    def __getattr__(self, name: str) -> Any:
        raise Refusal(
            f"the source asks the GPU's driver for `{name}`, and there is no GPU at build",
            hint="write the value into build.toml instead",
        )


def _forget_key() -> None:
    """Leave out the hash of all of Triton, which nobody looks at: units have keys of their own."""

    def key() -> str:
        return triton.__version__

    from triton.compiler import compiler  # type: ignore[import-not-found]
    from triton.runtime import autotuner, cache  # type: ignore[import-not-found]

    for module in (compiler, cache, autotuner):
        if hasattr(module, "triton_key"):
            module.triton_key = key


def _value(value: Any) -> Any:
    """A constant as Triton takes it."""
    if isinstance(value, dict):
        import triton.language as tl  # type: ignore[import-not-found]

        return getattr(tl, value["dtype"])
    return value


def _plain(value: Any) -> Any:
    """A constant as JSON; what is no number or text by its name."""
    value = getattr(value, "value", value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _explained(error: BaseException, kernel: Kernel, sources: Sources) -> Refusal:
    """Triton's message, at the line of the author's that it is about."""
    innermost = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    placed = [one for one in _chain(error) if getattr(one, "node", None) is not None]
    if placed:
        return _at_node(placed[-1], innermost, sources)
    lines = traceback.format_exception_only(type(error), error)
    refusal = Refusal("".join(lines).strip()[:2000])
    refusal.file = sources.relative(kernel.jit.fn.__code__.co_filename)
    refusal.line = kernel.jit.starting_line_number
    return refusal


def _chain(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__
    return found


def _at_node(error: Any, innermost: BaseException, sources: Sources) -> Refusal:
    source = error.src or ""
    message = getattr(innermost, "error_message", None) or getattr(error, "error_message", None)
    if message is None and innermost is not error:
        message = f"{type(innermost).__name__}: {innermost}"
    lines = source.splitlines()
    row, column = error.node.lineno, error.node.col_offset
    refusal = Refusal(message or "Triton cannot compile this")
    owner = _owner(source)
    if owner is not None:
        refusal.file = sources.relative(owner.fn.__code__.co_filename)
        refusal.line = _first_line(owner) + row - 1
    refusal.excerpt = (*lines[max(0, row - 1 - _AROUND) : row], " " * column + "^")
    return refusal


def _owner(source: str) -> Any:
    """The function whose text this is."""
    import gc

    own = (one for one in gc.get_objects() if type(one).__name__ == "JITFunction")
    return next(
        (one for one in own if getattr(one, "_src", getattr(one, "src", "")) == source), None
    )


def _first_line(owner: Any) -> int:
    """The line of `def`."""
    for index, line in enumerate(owner.raw_src):
        if line.strip().startswith("def "):
            return int(owner.starting_line_number) + index
    return int(owner.starting_line_number)
