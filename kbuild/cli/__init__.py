"""The commands: which there are, in which module each lives, and what each does in one line.

A command's module has `configure(parser)`, which declares its arguments, and `execute(args, ctx)`,
which returns the exit code. Commands that share a module (`MODULE:SUFFIX`) have `configure_SUFFIX`
and `execute_SUFFIX`. This table is all that `kbuild --help` reads.
"""

from __future__ import annotations

from kbuild import manual_page


class CommandEntry:
    """One row of the table."""

    __slots__ = ("configure", "execute", "group", "module", "name", "summary")

    def __init__(self, group: str, name: str, summary: str, where: str = "") -> None:
        module, _, suffix = (where or name.replace("-", "_")).partition(":")
        self.group = group
        self.name = name
        self.module = f"kbuild.cli.{module}"
        self.configure = f"configure_{suffix}" if suffix else "configure"
        self.execute = f"execute_{suffix}" if suffix else "execute"
        self.summary = summary


_TABLE = """\
Start:
init | Write a new kernel project
doctor | Report what is installed, what is missing, and how to fix it
Build and test:
build | Build the kernel's variants into build/
build-and-copy | The same as build | build
tune | Measure which candidate of a DSL kernel is the fastest
capture | Describe ops that follow from Python that launches kernels
test | Run the project's tests against a built variant
dev | Build and test again whenever a file of the project changes
bench | Measure the project's benchmarks on this machine
devshell | Open a shell with the tools that build a variant | shells:devshell
testshell | Open a shell in which a built variant can be tested | shells:testshell
aot | Write kernels in Python DSLs as C
cluster | Start machines that compile for others, or join them
clean | Remove the files that builds keep for the next build
Look and check:
check-config | Check build.toml and the files that it refers to | build_toml:check
check | Check sources and built variants
plan | Show what would be built and how
list-variants | List the project's variants | plan:list
abi-advice | Report which uses in the sources prevent Torch's stable ABI
check-builds | Check built variants, including that they load | check:builds
check-abi | Check the ABI of libraries, alone or in built variants | check:abi
verify | Verify the signatures of built variants | signatures:verify
reproduce | Build variants again in another folder and compare the bytes
Files of a project:
update-build | Rewrite build.toml in the current edition | build_toml:update
create-pyproject | Write a CMake project that builds without kbuild | pyproject:create
clean-pyproject | Remove what create-pyproject wrote | pyproject:clean
hash | Record in each variant the digest of its files | signatures:hash
sign | Sign built variants with sigstore | signatures:sign
fill-card | Fill in CARD.md from the project and its variants
Publish:
upload | Upload built variants to the Hub
wheel | Write wheels of built variants, which pip installs
build-and-upload | Build the kernel and upload it to the Hub | upload:build_and_upload
kbuild itself:
toolchain | Install, check and pin toolchains from wheels
cache | Show and prune the cache of this machine, or the shared one
schema | Print the JSON Schema of build.toml | build_toml:schema
skills | Copy instructions on kernels for coding agents
completions | Print the completion script for a shell
generate-docs | Write the command reference
"""
"""Groups; below each a line for each command: name, summary, and the module if named otherwise."""


def _read_table() -> tuple[CommandEntry, ...]:
    commands, group = [], ""
    for line in _TABLE.splitlines():
        name, *row = line.split(" | ")
        if row:
            commands.append(CommandEntry(group, name, *row))
        else:
            group = name.removesuffix(":")
    return tuple(commands)


COMMANDS = _read_table()
ALIASES = {
    "compile": "build",
    "make": "build",
    "watch": "dev",
    "benchmark": "bench",
    "new": "init",
    "autotune": "tune",
    "validate": "check-config",
}
"""Other names that people type -> the command; `kbuild --help` does not list them."""


def overview() -> str:
    """What `kbuild --help` prints."""
    lines = ["Package compute kernels: from build.toml to what any PyTorch user can load.", ""]
    lines += ["Usage: kbuild COMMAND [arguments]"]
    group = ""
    for command in COMMANDS:
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


def find_command(name: str) -> CommandEntry | None:
    """The command of that name, or of which it is another name."""
    name = ALIASES.get(name, name)
    return next((command for command in COMMANDS if command.name == name), None)
