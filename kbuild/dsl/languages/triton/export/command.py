"""`kbuild aot triton` and `kbuild aot link-triton`: kernels as C files, and their dispatchers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from kbuild.dsl.export import (
    RequestedUnits,
    export_compiler,
    find_function,
    paths_beside_first,
    targets_of_gpus,
)
from kbuild.dsl.languages.triton import Triton, worker_target
from kbuild.dsl.languages.triton.export.c_source import (
    ERRORS,
    MARK,
    assumption_condition,
    c_type,
    prototype,
    read_grid,
    write_source,
)
from kbuild.dsl.languages.triton.export.signature import (
    DIVISOR,
    ExportSignature,
    ExportVariant,
    c_name,
    read_signature,
    read_target,
    variant_of,
)
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.language import ExportedFiles, Exporter, Flavour, flavour_of
from kbuild.ops.steps import Pairs
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.errors import DamagedFileError, UsageError
from kbuild.system.files import FileSet
from kbuild.system.rendering import render
from kbuild.system.services import Services
from kbuild.system.untrusted import parse_json, reading, reason_of

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

_REQUIRED = ("kernel_name", "signature", "grid")


@dataclass(frozen=True)
class ExportRequest:
    """Options of `kbuild aot triton`, before the kernel's parameters are known."""

    name: str
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
        # In place: the compiler's language holds this dictionary, and reads it from here on.
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


_KIND = "a header of `kbuild aot triton`"


@dataclass(frozen=True)
class ExportHeader:
    """A header that `kbuild aot triton` wrote."""

    path: str
    variant: ExportVariant


def read_header(path: str, text: str) -> ExportHeader:
    """Parse the description of an image in a header.

    Raises:
        UsageError: the header was not written by `kbuild aot triton`.
    """
    line = next((line for line in text.splitlines() if line.startswith(MARK)), None)
    try:
        with reading(path, _KIND):
            if line is None:
                raise ValueError("it has no line `// kbuild-aot:`")
            data = parse_json(line.removeprefix(MARK), path, _KIND)
            return ExportHeader(path, ExportVariant.from_json(data))
    except DamagedFileError as error:
        hint = "give the headers that `kbuild aot triton` writes"
        raise UsageError(f"`{path}` cannot be linked: {reason_of(error)}", hint=hint) from error


def link(headers: Sequence[ExportHeader], stem: str) -> FileSet:
    """Generate the two files that link the images of one or more kernels.

    Algo 0 of a kernel is that of its first header.

    Raises:
        UsageError: they cannot be linked together.
    """
    variants = [header.variant for header in headers]
    _validate_headers(headers)
    names = dict.fromkeys(variant.name for variant in variants)
    groups = [_group(name, variants) for name in names]
    name = PurePosixPath(stem).name
    values = {
        "backend": variants[0].backend,
        "errors": ERRORS[variants[0].backend],
        "guard": f"KBUILD_AOT_{''.join(c if c.isalnum() else '_' for c in name).upper()}_H",
        "names": [*names],
        "groups": groups,
    }
    includes = [PurePosixPath(header.path).name for header in headers]
    source = render("export/link.c.j2", header=f"{name}.h", includes=includes, **values)
    return FileSet({f"{stem}.h": render("export/link.h.j2", **values), f"{stem}.c": source})


def _validate_headers(headers: Sequence[ExportHeader]) -> None:
    if not headers:
        raise UsageError("there are no headers to link")
    start = headers[0]
    first: dict[str, ExportHeader] = {}
    seen: dict[tuple[Any, ...], ExportHeader] = {}
    for header in headers:
        variant = header.variant
        if variant.backend != start.variant.backend:
            message = f"`{start.path}` is for {start.variant.backend}, `{header.path}` is not"
            raise UsageError(message, hint="link them separately: they use different drivers")
        known = first.setdefault(variant.name, header)
        ours, theirs = _c_parameter_types(known.variant), _c_parameter_types(variant)
        if ours != theirs:
            places = f"({ours}) in `{known.path}`, ({theirs}) in `{header.path}`"
            hint = "give them different names with --out-name"
            raise UsageError(f"`{variant.name}` has different arguments: {places}", hint=hint)
        calls = (variant.name, variant.target, variant.algo, variant.arguments)
        other = seen.setdefault(calls, header)
        if other is not header:
            message = f"`{other.path}` and `{header.path}` would be used for the same calls"
            raise UsageError(message, hint="leave one of them out")


def _c_parameter_types(variant: ExportVariant) -> str:
    """Types and names of the C function's parameters; C cannot distinguish types of pointers."""
    return ", ".join(f"{argument.type} {argument.name}" for argument in variant.arguments)


def _group(name: str, variants: Sequence[ExportVariant]) -> dict[str, Any]:
    named = [variant for variant in variants if variant.name == name]
    first = named[0]
    return {
        "name": name,
        "prototype": prototype(first),
        "call": ", ".join(["stream", *(c_name(argument) for argument in first.arguments)]),
        "types": [c_type(argument, first.backend) for argument in first.arguments],
        "algos": [_algo(algo, named) for algo in dict.fromkeys(variant.algo for variant in named)],
        "symbols": [variant.symbol for variant in named],
    }


def _algo(algo: tuple[str, ...], variants: Sequence[ExportVariant]) -> dict[str, Any]:
    with_algo = [variant for variant in variants if variant.algo == algo]
    targets = sorted({variant.target for variant in with_algo}, key=_order)
    return {
        "words": [word.replace("*/", "* /") for word in algo],
        "targets": targets,
        "by_target": [{"name": t, "variants": list(_by_hints(t, with_algo))} for t in targets],
    }


def _by_hints(target: str, variants: Sequence[ExportVariant]) -> Iterator[dict[str, str]]:
    """Yield variants with the most assumptions first; none is needed after one without any."""
    for_target = [variant for variant in variants if variant.target == target]
    for variant in sorted(
        for_target, key=lambda variant: -sum(bool(a.hint) for a in variant.arguments)
    ):
        conditions = [assumption_condition(a) for a in variant.arguments if a.hint]
        yield {"symbol": variant.symbol, "condition": " && ".join(conditions)}
        if not conditions:
            return


def _order(text: str) -> tuple[Any, ...]:
    """Sort key for targets: code before PTX, new archs before old, one chip before its family."""
    target = ImageTarget.parse(text)
    wanted = target.capability
    if wanted is None:
        return (text,)
    features = ("a", "f", "")
    return (target.kind == "ptx", -wanted.major, -wanted.minor, features.index(wanted.feature))
