"""`kbuild dev`: builds and tests the project again whenever one of its files changes."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli.parser import add_kernel_dir
from kbuild.cli.variants import add_python, chosen_python
from kbuild.system.services import Services


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="build and test for cuda:1, or cpu (default: the first GPU, else cpu)",
    )
    parser.add_argument(
        "--bench",
        action="store_true",
        help="measure the project's benchmarks after tests that pass",
    )
    add_python(parser, "builds and tests, and has Torch for the device")
    parser.set_defaults(rest=())
    parser.epilog = "Arguments after `--` are passed to pytest: kbuild dev -- -k backward"


def execute(args: Namespace, ctx: Services) -> int:
    """Build and test until Ctrl-C.

    Raises:
        ToolchainError: the interpreter has no Torch.
    """
    from kbuild.cli.dev_session import DevSession, start_host
    from kbuild.plan.project import BUILD_FILE, open_project

    root = ctx.folder(args.kernel_dir)
    if not (root / BUILD_FILE).is_file():
        open_project(root)  # which says so
    try:
        with start_host(ctx, root, chosen_python(args.python, ctx)) as host:
            DevSession(ctx, root, host, args.device, tuple(args.rest), has_bench=args.bench).run()
    except KeyboardInterrupt as request:
        if request.args:  # another signal than Ctrl-C
            raise
    return 0
