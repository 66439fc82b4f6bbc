"""The options that choose who builds, and those that are handed on to Nix."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.nix.options import NixOptions
    from kbuild.pipeline.driver import Wish

NAMES = "auto, local or nix"
_LOCAL_ONLY = (
    *("python", "torch_wheel", "with_source", "arch", "dev", "jobs", "memory", "time_budget"),
    *("keep_all", "report", "provenance", "allow", "unique_id", "kernel_sha", "kernel_dirty"),
)
_NIX_ONLY = (
    *("max_jobs", "cores", "builders", "rebuild", "print_build_logs"),
    *("override_input", "option"),
)


def add_driver(parser: ArgumentParser) -> None:
    """Declare `--driver` and what it hands on."""
    parser.add_argument(
        "--driver",
        default=os.environ.get("KBUILD_DRIVER") or "auto",
        metavar="NAME",
        help="who builds: local (this machine), nix (a derivation per variant, in a sandbox) or "
        "auto: nix where the project's flake.nix uses kbuild and Nix can be used "
        "(default: KBUILD_DRIVER, else auto)",
    )
    group = parser.add_argument_group("with Nix")
    group.add_argument(
        "--max-jobs",
        metavar="N",
        help="derivations to build at once, a number or `auto`; 0 leaves all to other machines",
    )
    group.add_argument(
        "--cores", type=int, metavar="N", help="processors of one derivation; 0 are all"
    )
    group.add_argument(
        "--builders", metavar="MACHINES", help="other machines to build on, as nix.conf has them"
    )
    group.add_argument(
        "--rebuild", action="store_true", help="build a second time, and compare the bytes"
    )
    group.add_argument(
        "-L", "--print-build-logs", action="store_true", help="show all that builders say"
    )
    add_flake(group)


def add_flake(parser: ArgumentParser | object) -> None:
    """Declare `--override-input` and `--option`."""
    add = getattr(parser, "add_argument")  # noqa: B009 - groups and parsers share no public type
    add(
        "--override-input",
        nargs=2,
        action="append",
        default=[],
        metavar=("INPUT", "FLAKE"),
        help="take an input of the flake from elsewhere (repeatable)",
    )
    add(
        "--option",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a setting of Nix (repeatable)",
    )


def nix_options_of(args: Namespace) -> NixOptions:
    """What is handed on to Nix, that of `KBUILD_NIX_ARGS` included.

    Raises:
        UsageError: a number is none, or the variable holds something else.
    """
    from kbuild.nix.options import NixOptions, with_environment

    max_jobs, cores = getattr(args, "max_jobs", None), getattr(args, "cores", None)
    if max_jobs is not None and max_jobs != "auto" and not max_jobs.isdecimal():
        raise UsageError(f"--max-jobs takes a number or `auto`, not `{max_jobs}`")
    if cores is not None and cores < 0:
        raise UsageError("--cores takes a number of processors, or 0 for all")
    given = NixOptions(
        max_jobs=max_jobs or "",
        cores=cores,
        builders=getattr(args, "builders", None) or "",
        overrides=tuple((one, other) for one, other in args.override_input),
        settings=tuple((one, other) for one, other in args.option),
        print_logs=getattr(args, "print_build_logs", False),
        rebuild=getattr(args, "rebuild", False),
    )
    return with_environment(given, os.environ)


def wish_of(args: Namespace, nix: NixOptions) -> Wish:
    """What the options say about who is to build.

    Raises:
        UsageError: there is no such driver.
    """
    from kbuild.pipeline.driver import NAMES as KNOWN
    from kbuild.pipeline.driver import Wish

    if args.driver not in KNOWN:
        raise UsageError(f"there is no driver `{args.driver}`", hint=f"there are {NAMES}")
    ambient = os.environ.get("KBUILD_TOOLCHAIN") or "auto"
    local = ["--toolchain"] if args.toolchain != ambient else []
    local += [_flag(name) for name in _LOCAL_ONLY if _is_given(getattr(args, name))]
    own = [_flag(name) for name in _NIX_ONLY if _is_given(getattr(args, name))]
    return Wish(args.driver, tuple(local), tuple(own), nix.configuration)


def _is_given(value: object) -> bool:
    """Whether a value differs from what it is without the option; 0 does."""
    return value is not None and value is not False and value != []


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
