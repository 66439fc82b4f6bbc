"""Runs Triton's compiler without a GPU; each request compiles one specialization of a function."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kbuild.dsl.worker import compiler_output, torch_stub, triton_internals
from kbuild.dsl.worker.compiler_output import memory_access
from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.sources import SourceCompiler, SourceModules
from kbuild.dsl.worker.triton_functions import (
    OPTIONS,
    KnownArguments,
    TritonKernel,
    UnknownArgumentError,
    UnknownTensor,
    diagnostics,
    explain_error,
    find_kernels,
    size_of_stderr,
)
from kbuild.dsl.worker.triton_internals import (
    KnownKernelError,
    descriptor_type,
    gluon_source,
    is_gluon,
    only_calls_of,
    stopped_where_known,
)

_DIVISIBILITY = [["tt.divisibility", 16]]
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_AMD_REGISTERS = re.compile(r"\.vgpr_count:\s+(\d+)")
_AMD_SPILLS = re.compile(r"\.vgpr_spill_count:\s+(\d+)")
_CONSTANT = "constexpr"


class Specialization:
    """A function with everything that is known about the calls of a unit."""

    def __init__(self, kernel: TritonKernel, request: Mapping[str, Any]) -> None:
        self._kernel, self._jit, self._request = kernel, kernel.jit, request
        self._target, self._is_gluon = request["target"], is_gluon(self._jit)
        self._options = dict(request["options"])
        if "ptx_version" in self._target:
            self._options["ptx_version"] = self._target["ptx_version"]
        self._types: Mapping[str, Any] = request["types"]
        # The author forbids assumptions about these arguments, although the unit's calls would
        # allow them.
        fixed = _names(self._jit.params, "do_not_specialize")
        unaligned = fixed | _names(self._jit.params, "do_not_specialize_on_alignment")
        self._ones = [name for name in request["ones"] if _argument(name) not in fixed]
        self._divisible = [
            name
            for name in request["divisible"]
            if _argument(name) not in unaligned and name not in self._ones
        ]
        self._constants = self._completed(request["constants"])

    def is_pruned(self) -> bool:
        """True if the kernel's `early_config_prune` drops the candidate for these constants."""
        if not self._request.get("tuned"):
            return False
        known = self._known(self._constants)
        kept, own = self._kernel.pruned(known), dict(self._request["options"])
        every = self._kernel.all_candidates()
        alike = (candidate for candidate in every if candidate["options"] == own)
        for candidate in alike:
            if all(self._constants.get(n) == v for n, v in candidate["constants"].items()):
                # A pruning function may return configs of its own making; then it has dropped none.
                return all(other in every for other in kept) and candidate not in kept
        return False

    def compiled(self, makes: Callable[[str], bool]) -> Any:
        """Run Triton's compiler.

        Args:
            makes: whether to generate the code of a kernel, given a digest of it.

        Raises:
            KnownKernelError: the code is not to be generated.
        """
        names = self._jit.arg_names
        leaves = self._leaves()
        values = {self._path(name): _value(value) for name, value in self._constants.items()}
        values |= {self._path(name): 1 for name in self._ones}
        values |= {self._path(name): None for name, type_ in leaves.items() if type_ == "none"}
        signature = {name: self._signature(name, self._types.get(name)) for name in names}
        attributes = {self._path(name): _DIVISIBILITY for name in self._divisible}
        call = (self._jit, signature, values, attributes)
        source = (gluon_source if self._is_gluon else ASTSource)(*call)
        target = GPUTarget(self._target["backend"], self._target["arch"], self._target["warp"])
        with (
            only_calls_of(target.backend, target.arch),
            stopped_where_known(target, lambda ir: makes(self._digest(ir))),
        ):
            return triton.compile(source, target=target, options=self._options)

    def _digest(self, ir: str) -> str:
        """Digest of everything that decides the code, and the image's facts but constants."""
        passed = [self._passed(), self._leaves(), self._divisible, self._ones]
        content = json.dumps([ir, passed, self._options, self._target], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def known(self) -> dict[str, Any]:
        """Facts of an image whose code another unit has: only its constants are its own."""
        return {
            "kind": self._target["kind"],
            "entry": self._kernel.name,
            "parameters": [],
            "shared": 0,
            "threads": self._target["warp"],
            "cluster": [1, 1, 1],
            "tensor_maps": [],
            "constants": self._plain_constants(),
            "divisible": [],
            "ones": [],
        }

    def _plain_constants(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in self._constants.items()}

    def image(self, compiled: Any, output: str) -> tuple[bytes, dict[str, Any]]:
        """Return the code and its facts for the launcher; `output` is what Triton printed."""
        facts = compiled.metadata._asdict()
        code = compiled.asm[self._target["kind"]]
        maps = facts.get("tensordesc_meta") or []
        sizes = self._actual(compiled)
        parameters = compiler_output.device_parameters(self._passed(), bool(maps), sizes)
        described = [p["name"] for p in parameters if p["kind"] == "tensor_map"]
        return code if isinstance(code, bytes) else code.encode(), {
            "kind": self._target["kind"],
            "entry": facts["name"],
            "parameters": parameters,
            "shared": facts["shared"],
            "threads": facts["num_warps"] * self._target["warp"],
            "cluster": [facts.get("num_ctas") or 1, 1, 1],
            "scratch": facts.get("global_scratch_size") or 0,
            "scratch_align": facts.get("global_scratch_align") or 1,
            "profile_scratch": facts.get("profile_scratch_size") or 0,
            "tensor_maps": [
                compiler_output.tensor_map(*pair) for pair in zip(described, maps, strict=False)
            ],
            "pdl": bool(facts.get("launch_pdl")),
            "cooperative": bool(facts.get("launch_cooperative_grid")),
            **self._resources(compiled, output),
            # Functions in Gluon have no `ttir`: they begin in the dialect for GPUs.
            **memory_access(compiled.asm.get("ttir") or compiled.asm["ttgir"]),
            "constants": self._plain_constants(),
            "divisible": self._divisible,
            "ones": self._ones,
            "types": {name: type_ for name, type_ in self._leaves().items() if type_ != "none"},
        }

    def _leaves(self) -> dict[str, str]:
        """Every argument with its type; the items of tuples are separate: `shape.0`."""
        types: dict[str, str] = {}
        for name in self._jit.arg_names:
            type_ = self._types.get(name)
            if isinstance(type_, list):
                types.update({f"{name}.{index}": item for index, item in enumerate(type_)})
            elif type_ is not None:
                types[name] = type_
        return types

    def _passed(self) -> list[tuple[str, str]]:
        """Arguments that the compiled function takes, in order."""
        dropped = {"none", _CONSTANT}
        leaves = self._leaves().items()
        return [(n, type_) for n, type_ in leaves if type_ not in dropped and n not in self._ones]

    def _signature(self, name: str, type_: Any) -> Any:
        if isinstance(type_, list):
            items = enumerate(type_)
            return tuple(self._signature(f"{name}.{index}", item) for index, item in items)
        if type_ in {None, "none"} or name in self._ones:
            return _CONSTANT
        return self._descriptor(name, type_) if type_.startswith("tensordesc<") else type_

    def _descriptor(self, name: str, type_: str) -> str:
        """Type of a descriptor; in Gluon's functions it includes the layout in shared memory."""
        given = self._request.get("layouts", {}).get(name)
        if self._is_gluon:
            return descriptor_type(type_, given)
        if given is not None:
            message = f"`{name}` of `{self._kernel.name}` has a `layout`, which `@gluon.jit` takes"
            raise RefusalError(message, hint="remove it: Triton chooses the layout itself")
        return type_

    def _path(self, name: str) -> tuple[int, ...]:
        argument, *items = name.split(".")
        return (self._jit.arg_names.index(argument), *map(int, items))

    def _actual(self, compiled: Any) -> list[int]:
        if self._target["backend"] == "hip":
            return compiler_output.parameter_sizes_of_amdgcn(compiled.asm["amdgcn"])
        return compiler_output.parameter_sizes_of_ptx(compiled.asm["ptx"])

    def _resources(self, compiled: Any, output: str) -> dict[str, int | None]:
        if self._target["backend"] == "hip":
            text, patterns = compiled.asm["amdgcn"], (_AMD_REGISTERS, _AMD_SPILLS)
        else:
            text, patterns = output, (_REGISTERS, _SPILLS)
        if self._target["kind"] == "ptx":  # the driver decides
            text = ""
        matches = (pattern.search(text) for pattern in patterns)
        registers, spills = (match and int(match[1]) for match in matches)
        return {"registers": registers, "spills": spills}

    def _completed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Add the values of heuristics and defaults to the constants.

        A constant with the name of a launch option has the option's value, as in Triton.
        """
        constants = {name: _value(value) for name, value in values.items()}
        both = _names(self._jit.params, "is_constexpr") & self._options.keys() - constants.keys()
        constants |= {name: self._options[name] for name in both}
        known = {*constants, *self._types}
        missing = [parameter for parameter in self._jit.params if parameter.name not in known]
        constants |= self._computed({parameter.name for parameter in missing}, constants)
        for parameter in missing:
            if parameter.name not in constants and not parameter.has_default:
                what = f"the value of `{parameter.name}` is unknown"
                raise RefusalError(f"`{self._kernel.name}`: {what}")
            constants.setdefault(parameter.name, parameter.default)
        return constants

    def _computed(self, missing: set[str], constants: Mapping[str, Any]) -> dict[str, Any]:
        known = self._known(constants)
        computed: dict[str, Any] = {}
        for values in self._kernel.heuristics:
            for name, function in values.items():
                if name in missing:
                    computed[name] = known[name] = self._evaluated(name, function, known)
                # An option that the candidate sets wins over the one that a heuristic computes.
                elif name not in self._jit.arg_names and name not in self._options:
                    known[name] = self._options[name] = self._option(name, function, known)
        return computed

    def _known(self, constants: Mapping[str, Any]) -> KnownArguments:
        """The arguments that are known in every call of the unit."""
        known = KnownArguments({**constants, **self._options, **dict.fromkeys(self._ones, 1)})
        for name, type_ in self._leaves().items():
            if type_ == "none":
                known[name] = None
            elif type_.startswith("*"):
                known[name] = UnknownTensor(name)
        return known

    def _option(self, name: str, function: Any, known: KnownArguments) -> Any:
        """Value of a launch option that the kernel computes, such as `num_warps`."""
        if name not in OPTIONS:
            raise RefusalError(
                f"@triton.heuristics of `{self._kernel.name}` computes `{name}`, which is neither "
                "its parameter nor a launch option"
            )
        return self._evaluated(name, function, known)

    def _evaluated(self, name: str, function: Any, known: KnownArguments) -> Any:
        try:
            return function(known)
        except UnknownArgumentError as unknown:
            raise RefusalError(
                f"`{name}` of `{self._kernel.name}` is computed by @triton.heuristics from "
                f"`{unknown.name}`, which is known only at run time",
                hint=f"list it in `configs`: `{{ {name} = ... }}`"
                if name in OPTIONS
                else f'write it as an expression: `constants = {{ {name} = "..." }}`',
            ) from None


def _names(params: Any, mark: str) -> set[str]:
    return {parameter.name for parameter in params if getattr(parameter, mark, False)}


def _argument(name: str) -> str:
    """The argument that a part belongs to."""
    return name.partition(".")[0]


def _value(value: Any) -> Any:
    """Convert a constant for Triton."""
    return getattr(tl, value["dtype"]) if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    """JSON value of a constant; objects become text."""
    value = getattr(value, "value", value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)


_CACHE = "TRITON_CACHE_DIR"
"""Folder for every step of a compilation; kbuild needs only the last step."""


class TritonCompiler(SourceCompiler):
    """See `protocol.WorkerCompiler`."""

    def __init__(self) -> None:
        super().__init__()
        os.environ[_CACHE] = str(Path.home() / "cache")
        torch_stub.install_stubs()
        triton_internals.install()

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.WorkerCompiler`."""
        sources = self._sources.get(request)
        kernel = self._functions(sources).get(request["function"])
        if kernel is None:
            raise RefusalError(f"there is no kernel function `{request['function']}`")
        output, printed = io.StringIO(), size_of_stderr()
        try:
            # ptxas' report on registers, which `_resources` reads, is printed by Triton.
            with contextlib.redirect_stdout(output):
                specialised = Specialization(kernel, request)
                if specialised.is_pruned():
                    # The client reads this file before it looks at the answer.
                    Path(request["output"]).write_bytes(b"")
                    return {"pruned": True}
                try:
                    compiled = specialised.compiled(self._ask)
                except KnownKernelError:
                    return specialised.known()
        except RefusalError:
            raise
        except Exception as error:
            refusal = self._explained(error, kernel, sources)
            refusal.excerpt += diagnostics(printed) if not refusal.excerpt else ()
            raise refusal from error
        finally:
            # Finished images are in kbuild's own cache, so these files would only fill the disk.
            shutil.rmtree(os.environ[_CACHE], ignore_errors=True)
        code, facts = specialised.image(compiled, output.getvalue())
        Path(request["output"]).write_bytes(code)
        return facts

    def _functions(self, sources: SourceModules) -> Mapping[str, TritonKernel]:
        """Kernels of the first source, and those of other sources whose names are unique."""
        others: dict[str, list[TritonKernel]] = {}
        for module in sources.imported_with_main():
            for name, kernel in find_kernels(module, sources.owns).items():
                others.setdefault(name, []).append(kernel)
        unique = {
            name: kernels[0]
            for name, kernels in others.items()
            # A kernel that one source imports from another is found in both, which is no conflict.
            if all(kernel.jit is kernels[0].jit for kernel in kernels)
        }
        own = find_kernels(sources.main(), sources.owns)
        return {**own, **{name: kernel for name, kernel in unique.items() if name not in own}}

    def _explained(
        self, error: Exception, kernel: TritonKernel, sources: SourceModules
    ) -> RefusalError:
        """Refusal, for the kernel's author, for an exception of Triton's."""
        return explain_error(error, kernel, sources)


Compiler = TritonCompiler
"""The class that `kbuild.dsl.worker` instantiates."""
