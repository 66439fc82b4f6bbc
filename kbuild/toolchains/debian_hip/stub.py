"""A stand-in for the HIP runtime: its symbols and versions, no code. The linker needs no more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.scratch import within


def make_stub(folder: Path, soname: str, symbols: str, cxx: Path, runner: Runner) -> None:
    """Write `folder/<soname>` and the link `libamdhip64.so`.

    Args:
        folder: gets the library; exists.
        soname: e.g. `libamdhip64.so.7`.
        symbols: a line `name version` for each symbol.
        cxx: the host's compiler, as assembler and linker.
        runner: starts it.

    Raises:
        ToolchainError: the compiler failed.
    """
    pairs = [(name, version) for name, version in map(str.split, symbols.splitlines())]
    source, script = folder / "stub.s", folder / "stub.map"
    source.write_text(assembly(name for name, _ in pairs))
    script.write_text(version_script(pairs))
    flags = (f"-Wl,-soname,{soname}", f"-Wl,--version-script={script.name}", "-Wl,--build-id=none")
    command = (str(cxx), "-shared", "-nostdlib", *flags, "-o", soname, source.name)
    done = runner.run(command, cwd=folder, env=within(folder))
    if not done.ok:
        raise ToolchainError(f"{cxx} could not make {soname}:\n{done.output.strip()}")
    source.unlink()
    script.unlink()
    (folder / "libamdhip64.so").symlink_to(soname)


def assembly(names: Iterable[str]) -> str:
    """Every name at one address, as a function."""
    symbols = (f".globl {name}\n.type {name}, @function\n{name}:\n" for name in names)
    return f'.text\n{"".join(symbols)}\n.section .note.GNU-stack,"",@progbits\n'


def version_script(symbols: Iterable[tuple[str, str]]) -> str:
    """A node for each version, in the order in which they first come."""
    nodes: dict[str, list[str]] = {}
    for name, version in symbols:
        nodes.setdefault(version, []).append(name)
    return "".join(
        f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in nodes.items()
    )
