"""`kbuild aot`: a Triton or CuTe kernel as C, and several of Triton's behind one function."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json
from kbuild.errors import UsageError
from kbuild.services import Services

if TYPE_CHECKING:
    from argparse import _ArgumentGroup
    from collections.abc import Sequence

    from kbuild.languages.export.request import ExportRequest
    from kbuild.runtime.files import FileSet
    from kbuild.runtime.processes import Runner

ACTIONS = ("triton", "cute", "link")
TRITON_PIN = "triton==3.9.0"
CUTE_PIN = "nvidia-cutlass-dsl==4.8.1"
CUDA_MAJORS = ("12", "13")
_REQUIRED_FOR_TRITON = ("kernel_name", "signature", "grid")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="triton: compile a kernel, and write C for each target; cute: write a header and an "
        "object for each target; link: write the C that joins several of Triton's by their headers",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        help="the Python source, then those beside it that it imports; link: headers",
    )
    parser.add_argument(
        "-o",
        "--out-path",
        type=Path,
        metavar="PATH",
        help="where the files go, without suffix (default, but for link: the name)",
    )
    _add_common_options(parser.add_argument_group("triton and cute"))
    _add_cute_options(parser.add_argument_group("cute"))
    _add_triton_options(parser.add_argument_group("triton"))
    add_json(parser)


def _add_common_options(group: _ArgumentGroup) -> None:
    group.add_argument(
        "-n", "--kernel-name", "--function", metavar="NAME", help="the kernel function"
    )
    group.add_argument(
        "-t",
        "--target",
        action="append",
        metavar="TARGET",
        help="sm_90a, cuda:90:32, hip:gfx942:64, compute_80 for PTX; several times for several "
        "(default: the GPUs of this machine)",
    )
    group.add_argument(
        "-on", "--out-name", metavar="NAME", help="what functions are called (default: the kernel)"
    )
    group.add_argument(
        "--toolchain",
        action="append",
        metavar="PIN",
        help=f"the exact version that compiles (default: {TRITON_PIN} or {CUTE_PIN})",
    )
    group.add_argument(
        "--cuda",
        choices=CUDA_MAJORS,
        default=CUDA_MAJORS[-1],
        help="the oldest CUDA whose drivers have to load the code (default: 13)",
    )


def _add_cute_options(group: _ArgumentGroup) -> None:
    group.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=TYPE",
        help='an argument or constant: "x=float16[M, N%%8]@16", n=i32, alpha=f32, block=128',
    )
    group.add_argument(
        "--function-prefix",
        metavar="NAME",
        help="what the C functions' names begin with, for one target; nothing is added to it "
        "(default: the name, the target and a digest)",
    )
    group.add_argument(
        "--emit", choices=("c",), default="c", help="c: a header and an object (default)"
    )


def _add_triton_options(group: _ArgumentGroup) -> None:
    group.add_argument(
        "-s",
        "--signature",
        metavar="TYPES",
        help='a type or constant for each parameter: "*fp32:16, i32, fp32, 1024"',
    )
    group.add_argument(
        "-g", "--grid", metavar="GRID", help='over the arguments: "cdiv(n, 1024), 1, 1"'
    )
    group.add_argument(
        "-w", "--num-warps", type=int, default=1, metavar="N", help="warps of a block (default: 1)"
    )
    group.add_argument("-ns", "--num-stages", type=int, default=3, metavar="N", help="default: 3")
    group.add_argument(
        "--num-ctas", type=int, default=1, metavar="N", help="blocks of a cluster (default: 1)"
    )


def execute(args: Namespace, ctx: Services) -> int:
    """Write the files, and name them."""
    if args.action == "cute":
        return _export_cute(args, ctx)
    made, folder = (
        _export_triton(args, ctx) if args.action == "triton" else _link_headers(args, ctx)
    )
    return _write_files(made, folder, args, ctx)


def _write_files(made: FileSet, folder: Path, args: Namespace, ctx: Services, **more: str) -> int:
    made.write(folder, manifest=False)
    paths = [str(folder / path) for path, _ in made.items()]
    if args.json:
        ctx.ui.data_json({"files": paths, **more})
    else:
        ctx.ui.data("\n".join(paths))
    return 0


def _export_triton(args: Namespace, ctx: Services) -> tuple[FileSet, Path]:
    from kbuild.pipeline.aot_export import export

    missing = [
        f"--{name.replace('_', '-')}" for name in _REQUIRED_FOR_TRITON if not getattr(args, name)
    ]
    if missing:
        raise UsageError(f"`kbuild aot triton` needs {', '.join(missing)}")
    args.target = args.target or _targets_of_gpus(ctx.runner, args.action, ("cuda", "rocm"))
    name = args.out_name or args.kernel_name
    target = ctx.path(args.out_path or Path(name))
    paths = [ctx.path(path) for path in args.files]
    order = _triton_request(args, tuple(_path_beside(path, paths[0]) for path in paths))
    return export(order, paths[0].parent, name, target.name, ctx), target.parent


def _export_cute(args: Namespace, ctx: Services) -> int:
    from kbuild.languages.base import flavour_of
    from kbuild.languages.cute.export import CuteExport, parse_targets
    from kbuild.pipeline.aot_cute import export_cute

    if not args.kernel_name:
        raise UsageError("`kbuild aot cute` needs --function")
    args.target = args.target or _targets_of_gpus(ctx.runner, args.action, ("cuda",))
    name, toolchain = args.out_name or args.kernel_name, tuple(args.toolchain or (CUTE_PIN,))
    target = ctx.path(args.out_path or Path(name))
    paths = [ctx.path(path) for path in args.files]
    order = CuteExport(
        function=args.kernel_name,
        sources=tuple(_path_beside(path, paths[0]) for path in paths),
        arguments=tuple(args.arg),
        targets=parse_targets(args.target, toolchain),
        toolchain=toolchain,
        flavour=flavour_of("cuda", f"{args.cuda}.0"),
        out_name=name,
        prefix=args.function_prefix,
    )
    made, archive = export_cute(order, paths[0].parent, target.name, ctx)
    ctx.ui.say(f"link them with {archive}, which is under NVIDIA's licence, and the CUDA runtime")
    return _write_files(made, target.parent, args, ctx, runtime=str(archive))


def _targets_of_gpus(runner: Runner, action: str, backends: Sequence[str]) -> list[str]:
    """What the GPUs of this machine run, of the first backend that has any.

    Raises:
        UsageError: no GPU answers.
    """
    from kbuild.backends import BACKENDS

    for name in backends:
        archs = BACKENDS.get(name).native_archs(runner)
        if archs:
            return [_triton_target(arch) for arch in archs]
    words = f"`kbuild aot {action}` needs --target: no GPU of this machine answers"
    raise UsageError(words, hint="e.g. `--target sm_90a`; no GPU is needed to compile for one")


def _triton_target(arch: str) -> str:
    """As Triton's tools write it: `cuda:90`, `hip:gfx942`."""
    return f"hip:{arch}" if arch.startswith("gfx") else f"cuda:{arch.replace('.', '')}"


def _triton_request(args: Namespace, sources: tuple[str, ...]) -> ExportRequest:
    from kbuild.languages.base import flavour_of
    from kbuild.languages.export.request import ExportRequest, compilable_targets
    from kbuild.languages.export.signature import read_target

    toolchain = tuple(args.toolchain or (TRITON_PIN,))
    wanted = [read_target(text) for text in args.target]
    kinds = {target.kind == "hsaco" for target in wanted}
    if len(kinds) > 1:
        raise UsageError("targets of CUDA and AMD in one command", hint="export them apart")
    options = [("num_warps", args.num_warps), ("num_stages", args.num_stages)]
    options += [("num_ctas", args.num_ctas)] if args.num_ctas != 1 else []
    return ExportRequest(
        function=args.kernel_name,
        sources=sources,
        signature=args.signature,
        grid=args.grid,
        targets=compilable_targets(wanted, toolchain, f"{args.cuda}.0"),
        options=tuple(options),
        toolchain=toolchain,
        flavour=flavour_of("rocm" if kinds == {True} else "cuda", f"{args.cuda}.0"),
    )


def _path_beside(path: Path, first: Path) -> str:
    """The path in the first source's folder."""
    if not path.is_file():
        raise UsageError(f"there is no file `{path}`")
    if not path.is_relative_to(first.parent):
        hint = "give sources that lie in the folder of the first, or below it"
        raise UsageError(f"`{path}` is not beside `{first.name}`", hint=hint)
    return path.relative_to(first.parent).as_posix()


def _link_headers(args: Namespace, ctx: Services) -> tuple[FileSet, Path]:
    from kbuild.languages.export.link import link, read_header

    if args.out_path is None:
        raise UsageError("`kbuild aot link` needs --out-path", hint="e.g. `-o add`")
    headers = []
    for path in args.files:
        try:
            text = ctx.path(path).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"`{path}` cannot be read: {error}") from error
        headers.append(read_header(str(path), text))
    target = ctx.path(args.out_path)
    return link(headers, target.name), target.parent
