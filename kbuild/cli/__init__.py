"""The commands: which there are, in which module each lives, and what each does in one line.

Those of plug-ins have entry points in the group `kbuild.commands`, each of which names a
`CommandEntry`. A command's module has `configure(parser)`, which declares its arguments, and
`execute(args, ctx)`, which returns the exit code. Commands that share a module (`MODULE:SUFFIX`)
have `configure_SUFFIX` and `execute_SUFFIX`. The table is all that `kbuild --help` reads of kbuild.
"""

from __future__ import annotations

from kbuild import manual_page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class CommandEntry:
    """One row of the table."""

    __slots__ = ("configure", "execute", "group", "module", "name", "summary")

    def __init__(self, group: str, name: str, summary: str, where: str) -> None:
        """Take a row; `where` is `MODULE[:SUFFIX]`."""
        self.module, _, suffix = where.partition(":")
        self.group = group
        self.name = name
        self.configure = f"configure_{suffix}" if suffix else "configure"
        self.execute = f"execute_{suffix}" if suffix else "execute"
        self.summary = summary


_TABLE = """\
Start:
init | Write a new kernel project
doctor | Report what is installed, what is missing, and how to fix it
Build and test:
build | Build the kernel's variants into build/
tune | Measure which candidate of a DSL kernel is the fastest
test | Run the project's tests against a built variant
dev | Build and test again whenever a file of the project changes
bench | Measure the project's benchmarks on this machine
devshell | Open a shell to build a variant in, or to test one in | shells
aot | Write kernels in Python DSLs as C
create-pyproject | Write a CMake project that builds without kbuild | pyproject
Look and check:
check-config | Check build.toml and what it refers to, or update it | build_toml
check | Check sources, built variants and libraries
plan | Show what would be built and how
list-variants | List the project's variants | plan:list
reproduce | Build variants again in another folder and compare the bytes
Publish:
upload | Upload built variants to the Hub
build-and-upload | Build the kernel and upload it to the Hub | upload:build_and_upload
sign | Sign built variants with sigstore, or record their digests | signatures:sign
verify | Verify the signatures of built variants | signatures:verify
wheel | Write wheels of built variants, which pip installs
kbuild itself:
toolchain | Install, check and pin toolchains from wheels
cache | Show and prune the cache of this machine
skills | Copy instructions on kernels for coding agents
completions | Print the completion script for a shell
Not in the overview:
fill-card | Fill in CARD.md from the project and its variants
generate-docs | Write the command reference
"""
"""Groups; below each a line for each command: name, summary, and the module if named otherwise."""
UNLISTED = "Not in the overview"
"""The group that `kbuild --help` leaves out: every build fills the card; the other is for us."""


def _read_table() -> tuple[CommandEntry, ...]:
    commands, group = [], ""
    for line in _TABLE.splitlines():
        name, *row = line.split(" | ")
        if row:
            summary, where = (*row, name.replace("-", "_"))[:2]
            commands.append(CommandEntry(group, name, summary, f"kbuild.cli.{where}"))
        else:
            group = name.removesuffix(":")
    return tuple(commands)


COMMANDS = _read_table()
ALIASES = {
    # kernel-builder's commands that are options here
    "build-and-copy": ("build",),
    "check-builds": ("check", "--builds"),
    "check-abi": ("check", "--abi"),
    "clean-pyproject": ("create-pyproject", "--clean"),
    "hash": ("sign", "--hash"),
    "testshell": ("devshell", "--test"),
    "update-build": ("check-config", "--update"),
    # what else people type
    "schema": ("check-config", "--schema"),
    "compile": ("build",),
    "make": ("build",),
    "watch": ("dev",),
    "benchmark": ("bench",),
    "new": ("init",),
    "autotune": ("tune",),
    "validate": ("check-config",),
}
"""Other names of commands -> the words that they stand for; `kbuild --help` does not list them."""


def overview() -> str:
    """The text of `kbuild --help`."""
    lines = ["Package compute kernels: from build.toml to what any PyTorch user can load.", ""]
    lines += ["Usage: kbuild COMMAND [arguments]"]
    group = ""
    for command in all_commands():
        if command.group == UNLISTED:
            continue
        if command.group != group:
            group = command.group
            lines += ["", f"{group}:"]
        lines.append(f"  {command.name:<18}{command.summary}")
    lines += [
        "",
        "Options of every command:",
        "  -h, --help        Show the command's arguments",
        "  -q, --quiet       Print only warnings and errors; -qq: only errors",
        "  -v, --verbose     Print more",
        "  --color WHEN      auto, always or never",
        "",
        "  -V, --version     Print kbuild's version",
        "",
        "Data on stdout, messages on stderr.",
        f"Manual: {manual_page('index.md')}",
    ]
    return "\n".join(lines)


def expand_alias(argv: Sequence[str]) -> list[str]:
    """A command line with a command's own name in place of another name for it."""
    return [*ALIASES.get(argv[0], argv[:1]), *argv[1:]]


def all_commands() -> tuple[CommandEntry, ...]:
    """Every command, those of plug-ins at the end of their group."""
    groups = list(dict.fromkeys(command.group for command in COMMANDS))
    commands = (*COMMANDS, *_plugin_commands())
    return tuple(sorted(commands, key=lambda one: (*groups, one.group).index(one.group)))


def find_command(name: str) -> CommandEntry | None:
    """The command of that name, or of which it is another name."""
    (name, *_) = expand_alias((name,))
    own = next((command for command in COMMANDS if command.name == name), None)
    return own or next(iter(_plugin_commands(name)), None)


def _plugin_commands(name: str = "") -> Iterator[CommandEntry]:
    """The commands of plug-ins, or the one of that name."""
    from kbuild.system.plugins import plugin_points

    for point in plugin_points("kbuild.commands"):
        if name in ("", point.name):
            try:
                command = point.load()
            except ImportError:  # a plug-in that was removed, or that lacks a library
                continue
            yield command
