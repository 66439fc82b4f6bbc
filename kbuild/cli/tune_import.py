"""`kbuild tune --import`: tables of other tools become rows of the project's own."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.config.issue import one_of
from kbuild.errors import UsageError
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.ops.model import OpSpec
    from kbuild.tune.table_import import ImportedTable


def add_import_options(parser: ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group("reading what others measured")
    group.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="import rows from a NineToothed CSV, or from a JSON file that maps M to"
        " configurations, instead of measuring (repeatable)",
    )
    group.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="rename a constant or option of the file to the kernel's name for it; "
        "an empty NEW leaves it out (repeatable)",
    )
    group.add_argument(
        "--key", metavar="LIST", help="the op's key in the file's names, e.g. 'M,N//2,K'"
    )
    group.add_argument(
        "--columns", metavar="LIST", help="names of the numbers in the second lines of a CSV"
    )
    group.add_argument("--arch", metavar="ARCH", help="the device's arch, e.g. sm_90 or gfx942")
    group.add_argument(
        "--dtype",
        action="append",
        default=[],
        metavar="DTYPE",
        help="write rows only for this dtype (repeatable)",
    )


def execute_import(args: Namespace, ctx: Services, root: Path) -> int:
    """Read the files, and add their rows.

    Raises:
        UsageError: what they mean is not clear.
    """
    from kbuild.ops.tuned_tables import TunedTable, write_table
    from kbuild.tune.table_import import (
        ImportResult,
        key_of,
        mapping_of,
        names_of,
        rows_from_import,
    )

    op = _imported_op(args, ctx, root)
    names, key = names_of(op, 0), key_of(args.key, op)
    columns = [str(value) for value in key]
    constants = [part.strip() for part in (args.columns or "").split(",") if part.strip()] or [
        name for name, _ in op.launches[0].candidates[0].constants
    ]
    answers = []
    for path in args.imports:
        imported = _read_file(ctx.path(path), columns, constants)
        mapping = mapping_of(args.map, imported.entries, names)
        joined: ImportResult = rows_from_import(imported, op, 0, key, mapping, args.dtype)
        device, arch = _measured_device(args, imported)
        written = ""
        if joined.rows and not args.dry_run:
            written = write_table(root, TunedTable(device, arch, joined.rows))
        for candidate in joined.lacking:
            ctx.ui.warn(f"`{op.name}` has no candidate {candidate}\n  hint: add it to `configs`")
        ctx.ui.say(f"{path}: {len(joined.rows)} rows for {device} ({arch})")
        answer = {"file": str(path), "device": device, "arch": arch, "table": written or None}
        answers.append({**answer, "rows": len(joined.rows), "lacking": list(joined.lacking)})
        if written and not args.json:
            ctx.ui.data(str(root / written))
    if args.json:
        ctx.ui.data_json({"imported": answers})
    return 0


def _read_file(path: Path, columns: Sequence[str], constants: Sequence[str]) -> ImportedTable:
    from kbuild.tune.table_import import read_import

    return read_import(path, columns, constants)


def _imported_op(args: Namespace, ctx: Services, root: Path) -> OpSpec:
    from kbuild.ops.manifest import read_manifest
    from kbuild.tune.table_import import ops_of

    if args.variant:
        kernels = read_manifest(ctx.folder(args.variant)).kernels
        ops = tuple(op for kernel in kernels for op in kernel.ops())
    else:
        ops = ops_of(root)
    names = {op.name: op for op in ops}
    if len(args.op) > 1 or (not args.op and len(ops) != 1):
        raise UsageError("which op is the file for?", hint=one_of("", names) or "--op NAME")
    wanted = args.op[0] if args.op else next(iter(names))
    if wanted not in names:
        raise UsageError(f"there is no op `{wanted}`", hint=one_of(wanted, names))
    return names[wanted]


def _measured_device(args: Namespace, imported: ImportedTable) -> tuple[str, str]:
    from kbuild.ops.tuned_tables import is_arch
    from kbuild.tune.table_import import arch_of

    if len(args.device) > 1:
        raise UsageError("--import takes one device")
    device = args.device[0] if args.device else imported.device
    if not device:
        message = f"`{imported.path}` does not say on which device it was measured"
        raise UsageError(message, hint="--device names it as the driver does, e.g. 'NVIDIA H200'")
    arch = args.arch or arch_of(device)
    if arch is None:
        raise UsageError(f"the arch of `{device}` is not known", hint="name it, e.g. --arch sm_90")
    if not is_arch(arch):
        raise UsageError(f"--arch: `{arch}` is not an arch", hint="e.g. sm_90 or gfx942")
    return device, arch
