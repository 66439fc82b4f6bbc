"""`kbuild aot triton` and `kbuild aot link`: the options, the compile requests and the files."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kbuild.dsl.export import (
    RequestedUnits,
    export_compiler,
    find_function,
    paths_beside_first,
    targets_of_gpus,
)
from kbuild.dsl.languages.triton import Triton, worker_target
from kbuild.dsl.languages.triton.export.c_source import read_grid, write_source
from kbuild.dsl.languages.triton.export.link import link, read_header
from kbuild.dsl.languages.triton.export.signature import (
    DIVISOR,
    ExportSignature,
    read_signature,
    read_target,
    variant_of,
)
from kbuild.ops.binding import BoundLaunch
from kbuild.ops.language import ExportedFiles, Exporter, Flavour, flavour_of
from kbuild.ops.model import Pairs
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.errors import UsageError
from kbuild.system.files import FileSet
from kbuild.system.services import Services

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

_REQUIRED = ("kernel_name", "signature", "grid")


@dataclass(frozen=True)
class ExportRequest:
    """Options of `kbuild aot triton`, before the kernel's parameters are known."""

    name: str
    """Name of the function."""
    sources: tuple[str, ...]
    """File names in one folder; the file with the function is first."""
    signature: str
    grid: str
    targets: tuple[ImageTarget, ...]
    options: Pairs
    toolchain: tuple[str, ...]
    flavour: Flavour
    language: str = "triton"


def compilable_targets(
    targets: Sequence[ImageTarget], toolchain: Sequence[str], cuda: str
) -> tuple[ImageTarget, ...]:
    """Return the targets that the compiler has for a release of CUDA: `sm_90` becomes `sm_90a`.

    Raises:
        UsageError: the compiler does not support a target.
    """
    return tuple(dict.fromkeys(_compilable_target(target, toolchain, cuda) for target in targets))


def _compilable_target(target: ImageTarget, toolchain: Sequence[str], cuda: str) -> ImageTarget:
    capability = target.capability
    if capability is None:
        resolved = Triton().targets("rocm", (target.arch,), None, toolchain)
    else:
        number = f"{capability.major}.{capability.minor}{capability.feature}"
        arch = f"{number}+PTX" if target.kind == "ptx" else number
        resolved = Triton().targets("cuda", (arch,), cuda, toolchain)
    accepted = [target]
    if target.kind == "cubin" and target.arch[-1].isdigit():
        accepted.append(ImageTarget(f"{target.arch}a", target.kind))
    for candidate in resolved.targets:
        if candidate in accepted:
            return candidate
    notes = "; ".join(resolved.notes)
    raise UsageError(f"`{target}` is nothing that {toolchain[0]} compiles for: {notes}")


def units_of(order: ExportRequest, signature: ExportSignature) -> dict[KernelUnit, dict[str, Any]]:
    """Return a unit for each target with the worker's request; see `Language.request`."""
    arguments, name = signature.arguments, order.name
    request = {
        "function": name,
        "types": {argument.name: argument.type for argument in arguments},
        "constants": dict(signature.constants),
        "divisible": [argument.name for argument in arguments if argument.hint == DIVISOR],
        "ones": [argument.name for argument in arguments if argument.hint == 1],
        "options": dict(order.options),
    }
    constants = tuple((n, value) for n, value in signature.constants if value is not None)
    first = KernelUnit(
        order.language, name, name, 0, (name,), order.targets[0], (),
        constants=constants, options=order.options,
    )  # fmt: skip
    units = (replace(first, target=target) for target in order.targets)
    return {unit: {**request, "target": worker_target(unit.target)} for unit in units}


class _RequestedTriton(RequestedUnits, Triton):
    """Triton with units from a command line."""


def export(order: ExportRequest, root: Path, name: str, stem: str, services: Services) -> FileSet:
    """Compile every target and generate its C files.

    Args:
        order: the options.
        root: folder of the sources.
        name: name of the C functions.
        stem: path of the files without arch, digest and suffix.
        services: access to processes, network and user.

    Raises:
        UsageError: signature or grid do not fit the kernel.
        BuildError: it cannot be imported or compiled.
        ToolchainError: the toolchain cannot be installed.
    """
    requests: dict[KernelUnit, dict[str, Any]] = {}
    with export_compiler(_RequestedTriton(requests), services) as compiler:
        functions = compiler.describe(order, root, order.targets)
        function = find_function(order.name, functions, order.sources[0], Triton.decorator)
        signature = read_signature(order.signature, function.name, function.parameters)
        grid = read_grid(order.grid, signature)
        requests |= units_of(order, signature)
        bound = BoundLaunch(function.name, (), ())
        images = compiler.compile(order, root, [(unit, bound) for unit in requests])
    files = FileSet()
    axes = [str(axis) for axis in grid]
    for image in images:
        variant = variant_of(name, image.unit.target, signature, order.options, axes)
        files = files.merge(write_source(variant, grid, image.image, image.code, stem))
    return files


class TritonExporter(Exporter):
    """See `Language.exporter`."""

    actions: ClassVar = {
        "triton": "compile a kernel, and write C for each target",
        "link": "write the C that joins several of Triton's by their headers",
    }
    pin = "triton==3.9.0"

    def configure(self, group: _ArgumentGroup) -> None:
        """See `Exporter.configure`."""
        group.add_argument(
            "-s",
            "--signature",
            metavar="TYPES",
            help='a type or constant for each parameter: "*fp32:16, i32, fp32, 1024"',
        )
        group.add_argument(
            "-g",
            "--grid",
            metavar="GRID",
            help='grid, computed from the arguments: "cdiv(n, 1024), 1, 1"',
        )
        for names, default, text in (
            (("-w", "--num-warps"), 1, "warps of a block (default: 1)"),
            (("-ns", "--num-stages"), 3, "default: 3"),
            (("--num-ctas",), 1, "blocks of a cluster (default: 1)"),
        ):
            group.add_argument(*names, type=int, default=default, metavar="N", help=text)

    def export(self, args: Namespace, services: Services) -> ExportedFiles:
        """See `Exporter.export`."""
        if args.action == "link":
            return _link_headers(args, services)
        missing = [f"--{name.replace('_', '-')}" for name in _REQUIRED if not getattr(args, name)]
        if missing:
            raise UsageError(f"`kbuild aot triton` needs {', '.join(missing)}")
        targets = args.target or targets_of_gpus(services.runner, args.action, ("cuda", "rocm"))
        name = args.out_name or args.kernel_name
        target = services.path(args.out_path or Path(name))
        paths = [services.path(path) for path in args.files]
        sources = paths_beside_first(paths)
        toolchain = tuple(args.toolchain or (TritonExporter.pin,))
        wanted = [read_target(text) for text in targets]
        kinds = {target.kind == "hsaco" for target in wanted}
        if len(kinds) > 1:
            raise UsageError(
                "targets of CUDA and AMD in one command", hint="export them separately"
            )
        options = [("num_warps", args.num_warps), ("num_stages", args.num_stages)]
        options += [("num_ctas", args.num_ctas)] if args.num_ctas != 1 else []
        order = ExportRequest(
            name=args.kernel_name,
            sources=sources,
            signature=args.signature,
            grid=args.grid,
            targets=compilable_targets(wanted, toolchain, f"{args.cuda}.0"),
            options=tuple(options),
            toolchain=toolchain,
            flavour=flavour_of("rocm" if kinds == {True} else "cuda", f"{args.cuda}.0"),
        )
        files = export(order, paths[0].parent, name, target.name, services)
        return ExportedFiles(files, target.parent)


def _link_headers(args: Namespace, services: Services) -> ExportedFiles:
    if args.out_path is None:
        raise UsageError("`kbuild aot link` needs --out-path", hint="e.g. `-o add`")
    headers = []
    for path in args.files:
        try:
            text = services.path(path).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"`{path}` cannot be read: {error}") from error
        headers.append(read_header(str(path), text))
    target = services.path(args.out_path)
    return ExportedFiles(link(headers, target.name), target.parent)
