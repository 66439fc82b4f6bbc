"""The commands: which there are, in which module each lives, and what each does in one line.

A command's module has `configure(parser)`, which declares its arguments, and `execute(args, ctx)`,
which returns the exit code. Commands that share a module (`MODULE:SUFFIX`) have `configure_SUFFIX`
and `execute_SUFFIX`. This table is all that `kbuild --help` reads.
"""

from __future__ import annotations


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


_START, _BUILD, _CHECK, _FILES, _HUB, _ITSELF = (
    "Start",
    "Build and test",
    "Look and check",
    "Files of a project",
    "Publish",
    "kbuild itself",
)

COMMANDS = tuple(
    CommandEntry(*row)
    for row in (
        (_START, "init", "Write a new kernel project"),
        (_START, "doctor", "Report what is installed, what is missing, and how to fix it"),
        (_BUILD, "build", "Build the kernel's variants into build/"),
        (_BUILD, "build-and-copy", "The same as build", "build"),
        (_BUILD, "tune", "Measure which candidate of a DSL kernel is the fastest"),
        (_BUILD, "capture", "Describe ops that follow from Python that launches kernels"),
        (_BUILD, "test", "Run the project's tests against a built variant"),
        (
            _BUILD,
            "devshell",
            "Open a Nix shell with the tools that build a variant",
            "shells:devshell",
        ),
        (
            _BUILD,
            "testshell",
            "Open a Nix shell in which a built variant can be tested",
            "shells:testshell",
        ),
        (_BUILD, "aot", "Write kernels in Python DSLs as C"),
        (_BUILD, "clean", "Remove the files that builds keep for the next build"),
        (
            _CHECK,
            "check-config",
            "Check build.toml and the files that it refers to",
            "build_toml:check",
        ),
        (_CHECK, "check", "Check sources and built variants"),
        (_CHECK, "plan", "Show what would be built and how"),
        (_CHECK, "list-variants", "List the project's variants", "plan:list"),
        (_CHECK, "abi-advice", "Report which uses in the sources prevent Torch's stable ABI"),
        (_CHECK, "check-builds", "Check built variants, including that they load", "check:builds"),
        (
            _CHECK,
            "check-abi",
            "Check the ABI of libraries, alone or in built variants",
            "check:abi",
        ),
        (_CHECK, "verify", "Verify the signatures of built variants", "signatures:verify"),
        (_CHECK, "reproduce", "Build variants again in another folder and compare the bytes"),
        (_FILES, "update-build", "Rewrite build.toml in the current edition", "build_toml:update"),
        (
            _FILES,
            "create-pyproject",
            "Write a CMake project that builds without kbuild",
            "pyproject:create",
        ),
        (_FILES, "clean-pyproject", "Remove what create-pyproject wrote", "pyproject:clean"),
        (_FILES, "hash", "Record in each variant the digest of its files", "signatures:hash"),
        (_FILES, "sign", "Sign built variants with sigstore", "signatures:sign"),
        (_FILES, "fill-card", "Fill in CARD.md from the project and its variants"),
        (_HUB, "upload", "Upload built variants to the Hub"),
        (
            _HUB,
            "build-and-upload",
            "Build the kernel and upload it to the Hub",
            "upload:build_and_upload",
        ),
        (_HUB, "publish", "Publish built variants to a mirror or to the Hub", "upload:publish"),
        (
            _HUB,
            "verify-mirror",
            "Compare every file of a mirror with its manifests",
            "versions:verify_mirror",
        ),
        (_HUB, "versions", "List a kernel's versions and the variants that fit here"),
        (_HUB, "diff", "Show the differences between two versions of a kernel", "versions:diff"),
        (_ITSELF, "toolchain", "Install, check and pin toolchains from wheels"),
        (_ITSELF, "schema", "Print the JSON Schema of build.toml", "build_toml:schema"),
        (_ITSELF, "completions", "Print the completion script for a shell"),
        (_ITSELF, "generate-docs", "Write the command reference"),
    )
)


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
        "Data on stdout, messages on stderr. Exit codes: docs/reference/exit-codes.md",
    ]
    return "\n".join(lines)


def find_command(name: str) -> CommandEntry | None:
    """The command of that name."""
    return next((command for command in COMMANDS if command.name == name), None)
