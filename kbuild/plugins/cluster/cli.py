"""`kbuild cluster`: start a cluster of machines that compile, or join one."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTIONS = ("start", "worker")
DEFAULT_PORT = 8786


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="start a scheduler and workers; or be a worker of the cluster at ADDRESS",
    )
    parser.add_argument("address", nargs="?", help="worker: of the scheduler, e.g. tls://HOST:8786")
    _add_start_options(parser)
    _add_worker_options(parser)


def _add_start_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="start: workers on this machine (default: 1, or 0 with --hosts)",
    )
    parser.add_argument(
        "--hosts",
        type=Path,
        metavar="FILE",
        help="start: machines for workers, one a line, with its Python if python3 has no kbuild",
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        help="start: address to listen on (default: 127.0.0.1, or all with --hosts)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        metavar="N",
        help=f"start: port to listen on (default: {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--scheduler-file",
        type=Path,
        metavar="FILE",
        help="start: write the address into FILE, for --executor FILE",
    )


def _add_worker_options(parser: ArgumentParser) -> None:
    """Declare those that a worker has, and `start` for the workers that it starts."""
    parser.add_argument(
        "--credentials",
        metavar="FILE",
        help="certificate and key of the cluster, or - for standard input (default: "
        "KBUILD_CLUSTER_CREDENTIALS, else cluster/credentials.pem in the cache "
        "folder)",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="folder of workers (default: workers in the cache folder)",
    )
    parser.add_argument(
        "--processors", metavar="LIST", help="worker: be held to these processors, e.g. 0-3"
    )
    parser.add_argument(
        "--memory", metavar="SIZE", help="worker: memory limit for its compilers, e.g. 12G"
    )
    parser.add_argument(
        "--python",
        default="",
        metavar="PROGRAM",
        help="interpreter with Torch and pytest for tests and measurements (default: "
        "KBUILD_WORKER_PYTHON, else the one that builds there use)",
    )
    parser.add_argument("--name", default="", metavar="NAME", help="worker: its name in messages")


def execute(args: Namespace, ctx: Services) -> int:
    """Run until the cluster ends."""
    if args.action == "worker":
        return _be_worker(args, ctx)
    return _start(args, ctx)


def _start(args: Namespace, ctx: Services) -> int:
    from kbuild.plugins.cluster.serve import ClusterRequest, read_hosts, run_cluster

    if args.address:
        raise UsageError("`kbuild cluster start` takes no address")
    hosts = read_hosts(ctx.path(args.hosts)) if args.hosts else ()
    workers = args.workers if args.workers is not None else int(not hosts)
    if workers < 0:
        raise UsageError("--workers takes a number, 0 or more")
    request = ClusterRequest(
        args.host or ("0.0.0.0" if hosts else "127.0.0.1"),  # noqa: S104 - it speaks TLS
        args.port,
        _workers_folder(args, ctx),
        _credentials(args, ctx),
        workers,
        hosts,
        ctx.path(args.scheduler_file) if args.scheduler_file else None,
        args.python,
    )
    run_cluster(request, ctx.ui.say)
    return 0


def _be_worker(args: Namespace, ctx: Services) -> int:
    from kbuild.plugins.cluster.connect import require_distributed, security_of
    from kbuild.plugins.cluster.serve import (
        STDIN,
        WorkerRequest,
        parse_processors,
        parse_worker_memory,
        run_worker,
        worker_folder,
    )
    from kbuild.system.temporary import locked_temporary_folder

    if not args.address:
        raise UsageError("give the address of the scheduler", hint="kbuild cluster worker ADDRESS")
    require_distributed()
    processors = parse_processors(args.processors) if args.processors else ()
    memory, is_tls = parse_worker_memory(args.memory), not args.address.startswith("tcp:")
    given = args.credentials == STDIN
    with (
        locked_temporary_folder("cluster") if given else nullcontext() as held,
        worker_folder(_workers_folder(args, ctx)) as folder,
    ):
        credentials = _credentials(args, ctx)
        if held is not None:
            credentials = held.folder / "credentials.pem"
            # The mode is set before the key is written, so that others can never read it.
            credentials.touch(mode=0o600)
            credentials.write_text(sys.stdin.read())
        security = security_of(credentials) if is_tls else None
        name, devices = args.name or folder.name, _devices(ctx)
        listed = "".join(f", {count} x {model}" for model, count in devices.items())
        ctx.ui.say(f"worker {name}: {folder}{listed}")
        request = WorkerRequest(
            args.address, folder, processors, memory, name, devices, args.python
        )
        run_worker(request, security)
    return 0


def _credentials(args: Namespace, ctx: Services) -> Path:
    from kbuild.plugins.cluster.connect import credentials_file

    if args.credentials:
        return ctx.path(Path(args.credentials))
    return credentials_file(os.environ, ctx.cache)


def _workers_folder(args: Namespace, ctx: Services) -> Path:
    return ctx.path(args.directory) if args.directory else ctx.cache / "workers"


def _devices(ctx: Services) -> Mapping[str, int]:
    """GPUs of this machine by model, as far as the driver names them."""
    done = ctx.runner.run(("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    return Counter(filter(None, done.output.splitlines())) if done.ok else {}
