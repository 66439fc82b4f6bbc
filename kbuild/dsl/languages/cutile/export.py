"""`kbuild aot cutile`: C files for each target, as `kbuild aot triton` writes them.

Arguments are written as for `kbuild aot cute`. An array is passed as its address, its sizes and its
strides: `x`, `x_shape_0`, `x_stride_0`.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from kbuild.dsl.export import (
    RequestedUnits,
    export_compiler,
    find_function,
    paths_beside_first,
    targets_of_gpus,
)
from kbuild.dsl.languages.cute.export import read_arguments
from kbuild.dsl.languages.cutile import DISTRIBUTION, Cutile
from kbuild.dsl.languages.triton import TYPES
from kbuild.dsl.languages.triton.export.c_source import read_grid, write_source
from kbuild.dsl.languages.triton.export.signature import (
    ExportArgument,
    ExportSignature,
    read_target,
    variant_of,
)
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.image import KernelImage
from kbuild.ops.language import ExportedFiles, Exporter, Flavour, ResolvedTargets
from kbuild.ops.steps import Pairs
from kbuild.ops.tensor_layout import DIVISOR
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.errors import UsageError
from kbuild.system.files import FileSet
from kbuild.system.services import Services

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

_TOOLKIT = "13.0"


@dataclass(frozen=True)
class CutileExport:
    """Options of `kbuild aot cutile`."""

    name: str
    sources: tuple[str, ...]
    """File names in one folder; the file with the function is first."""
    arguments: tuple[Mapping[str, Any], ...]
    """Arguments of the worker's request, in the kernel's order."""
    constants: Mapping[str, Any]
    options: Pairs
    targets: tuple[ImageTarget, ...]
    toolchain: tuple[str, ...]
    flavour: Flavour = "cuda13"
    language: str = "cutile"

    def requests(self) -> dict[KernelUnit, dict[str, Any]]:
        """A unit for each target, with the request to the worker."""
        asked = {
            "function": self.name,
            "arguments": list(self.arguments),
            "constants": dict(self.constants),
            "options": dict(self.options),
        }
        name = self.name
        units = (KernelUnit(self.language, name, name, 0, (name,), t, ()) for t in self.targets)
        return {unit: {**asked, "arch": unit.target.arch} for unit in units}

    def signature(self) -> ExportSignature:
        """Arguments of the C function, and the kernel's constants."""
        arguments = tuple(part for argument in self.arguments for part in _parts(argument))
        return ExportSignature(arguments, tuple(self.constants.items()))


def _parts(argument: Mapping[str, Any]) -> Iterator[ExportArgument]:
    name = argument["name"]
    if argument["kind"] != "tensor":
        form = {"int": "i{}", "float": "fp{}", "bool": "u1"}[argument["kind"]]
        yield ExportArgument(name, form.format(argument["bits"]))
        return
    yield ExportArgument(name, f"*{TYPES[argument['dtype']]}", argument["align"])
    bits = argument["bits"]
    for word, values in (("shape", argument["shape"]), ("stride", argument["strides"])):
        for at, (constant, divisor) in enumerate(values):
            # A C caller passes a stride of 1 as well, and the function checks it.
            hint = constant or (divisor if divisor > 1 else 0)
            yield ExportArgument(f"{name}_{word}_{at}", f"i{bits}", hint)


def array_arguments(arguments: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Arguments of the command line in the form of the worker's request.

    Raises:
        UsageError: images cannot assume what one says.
    """
    names = [argument["name"] for argument in arguments if argument["kind"] == "tensor"]
    converted: list[Mapping[str, Any]] = []
    for argument in arguments:
        if argument["kind"] == "tensor":
            # Callers in C may pass any addresses.
            others = [name for name in names if name != argument["name"]]
            converted.append({**_array(argument), "aliases": others})
        elif argument["kind"] == "tuple":
            raise UsageError(f"--arg: `{argument['name']}`: pass the items of a tuple separately")
        else:
            converted.append({**argument, "bits": argument.get("bits", 32)})
    return tuple(converted)


def _array(argument: Mapping[str, Any]) -> dict[str, Any]:
    name, shape, strides = argument["name"], argument["shape"], argument["strides"]
    if any(isinstance(size, int) for size in shape):
        raise UsageError(f"--arg: `{name}`: a size is passed in each call: write a name for it")
    divisors = [size["divisor"] for size in shape]
    rows: list[tuple[int | None, int]]
    if strides is None:
        rows = [(None, max(divisors[at + 1 :])) for at in range(len(shape) - 1)]
        rows.append((1, 1))
    else:
        rows = [(s, 1) if isinstance(s, int) else (None, s["divisor"]) for s in strides]
    known = {*divisors, *(divisor for _, divisor in rows)} <= {1, DIVISOR}
    if not known or argument["align"] not in (0, DIVISOR) or {s for s, _ in rows} - {None, 1}:
        message = f"--arg: `{name}`: `%{DIVISOR}`, `@{DIVISOR}` and a stride of 1 can be assumed"
        raise UsageError(message, hint="write a name for every other size and stride")
    return {
        **{key: argument[key] for key in ("name", "kind", "dtype", "align")},
        "bits": 32,
        "flat": False,
        "contiguous": strides is None,
        "shape": [(None, divisor) for divisor in divisors],
        "strides": rows,
    }


def compilable_target(text: str, toolchain: Sequence[str]) -> ImageTarget:
    """Parse a target: `sm_90` becomes `sm_90a`.

    Raises:
        UsageError: it is none, or cuTile does not compile for it.
    """
    target = read_target(text)
    resolved = ResolvedTargets((), ("it makes machine code for CUDA alone",))
    if target.kind == "cubin":
        resolved = Cutile().targets("cuda", (str(target.capability),), _TOOLKIT, toolchain)
    if not resolved.targets:
        notes = "; ".join(resolved.notes)
        raise UsageError(f"`{text}` is nothing that {toolchain[0]} compiles for: {notes}")
    return resolved.targets[0]


class _RequestedCutile(RequestedUnits, Cutile):
    """cuTile with units from a command line."""


class CutileExporter(Exporter):
    """See `Language.exporter`."""

    actions: ClassVar = {"cutile": "compile a kernel, and write C for each target"}
    pin = f"{DISTRIBUTION}==1.7.0"

    def configure(self, group: _ArgumentGroup) -> None:
        """See `Exporter.configure`; `--arg`, `--grid` and `--num-ctas` are those of the others."""
        group.add_argument(
            "--occupancy", type=int, metavar="N", help="blocks that share a multiprocessor"
        )

    def export(self, args: Namespace, services: Services) -> ExportedFiles:
        """See `Exporter.export`."""
        if not args.kernel_name or not args.grid:
            raise UsageError("`kbuild aot cutile` needs --function and --grid")
        toolchain = tuple(args.toolchain or (self.pin,))
        if reason := Cutile().unsupported_reason(toolchain):
            raise UsageError(f"--toolchain {reason}")
        targets = args.target or targets_of_gpus(services.runner, args.action, ("cuda",))
        name = args.out_name or args.kernel_name
        target = services.path(args.out_path or name)
        paths = [services.path(path) for path in args.files]
        arguments, constants = read_arguments(args.arg)
        options = {"num_ctas": args.num_ctas if args.num_ctas != 1 else None}
        options["occupancy"] = args.occupancy
        order = CutileExport(
            name=args.kernel_name,
            sources=paths_beside_first(paths),
            arguments=array_arguments(arguments),
            constants=constants,
            options=tuple((key, value) for key, value in options.items() if value is not None),
            targets=tuple(dict.fromkeys(compilable_target(text, toolchain) for text in targets)),
            toolchain=toolchain,
        )
        signature, requests = order.signature(), order.requests()
        grid = read_grid(args.grid, signature)
        with export_compiler(_RequestedCutile(requests), services) as compiler:
            functions = compiler.describe(order, paths[0].parent, order.targets)
            find_function(order.name, functions, order.sources[0], Cutile.decorator)
            bound = BoundLaunch(order.name, (), ())
            images = compiler.compile(order, paths[0].parent, [(unit, bound) for unit in requests])
        files, axes = FileSet(), [str(axis) for axis in grid]
        for unit_image in images:
            image = _renamed(unit_image.image)
            typed = _with_types(signature, image)
            variant = variant_of(name, image.target, typed, order.options, axes)
            files = files.merge(write_source(variant, grid, image, unit_image.code, target.name))
        return ExportedFiles(files, target.parent)


def _renamed(image: KernelImage) -> KernelImage:
    """The image with parameters called as in C; `ones` are passed, and checked by the function."""
    parameters = tuple(replace(p, name=p.name.replace(".", "_")) for p in image.parameters)
    return replace(image, parameters=parameters, divisible=frozenset(), ones=frozenset())


def _with_types(signature: ExportSignature, image: KernelImage) -> ExportSignature:
    """The signature with the image's types: annotations of the kernel may ask for 64 bits."""
    types = {parameter.name: parameter.type for parameter in image.parameters}
    arguments = (replace(argument, type=types[argument.name]) for argument in signature.arguments)
    return replace(signature, arguments=tuple(arguments))
