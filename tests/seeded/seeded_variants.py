"""Makes variants from recipes: compiles, links against stand-ins, writes files, takes digests."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile
from jinja2 import Environment, FileSystemLoader

from kbuild.plan.digest import digest_variant
from kbuild.plan.metadata import METADATA_FILE, Metadata
from kbuild.project.variant import Variant
from tests.seeded.seeded_recipe import ID, INIT, Case, Recipe, Stub
from tests.support.boxed import compile_boxed
from tests.support.command_project import write_files

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "templates" / "project"
COMPILE = (
    *("-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-fno-gnu-unique", "-Wl,--as-needed"),
    *("-Wl,-z,relro,-z,now", f"-DTORCH_EXTENSION_NAME={ID}", f"-I{TEMPLATES}"),
)


def make_case(case: Case, folder: Path) -> Path:
    """The case's variant or project below `folder`; an older one there is replaced.

    Raises:
        RuntimeError: the compiler refuses, with what it says.
    """
    target = folder / re.sub(r"[^A-Za-z0-9_.]+", "-", case.name).strip("-")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    return make_project(case, target) if case.recipe is None else make(case.recipe, target)


def make(recipe: Recipe, folder: Path) -> Path:
    """The variant's folder, below `folder` and named as variants are."""
    root = folder / "build" / recipe.variant if recipe.boxed else folder / recipe.variant
    root.mkdir(parents=True)
    if recipe.boxed:
        compile_boxed(folder, recipe.variant, recipe.boxed)
    write_files(root, ({"__init__.py": INIT, "_ops.py": _ops()} | dict(recipe.python)))
    data = _compiled(recipe, folder / "objects") if recipe.library is None else recipe.library
    (root / recipe.file).write_bytes(recipe.edit(data) if recipe.edit else data)
    _seal(root, recipe)
    if recipe.spoil:
        recipe.spoil(root)
    return root


def make_project(case: Case, folder: Path) -> Path:
    """A copy of the example `relu`, with the case's replacements."""
    root = folder / "relu"
    ignored = shutil.ignore_patterns("build", ".kbuild", "__pycache__", ".pytest_cache")
    shutil.copytree(ROOT / "examples" / "relu", root, ignore=ignored)
    for name, (before, after) in case.sources.items():
        text = (root / name).read_text()
        if before not in text:
            raise ValueError(f"{name} of the example has no `{before}` any more")
        (root / name).write_text(text.replace(before, after))
    return root


def as_lld_writes(data: bytes) -> bytes:
    """The library with a `.symtab` whose names have no `@VERSION`.

    GNU ld puts a symbol's version behind its name there, lld does not; neither is read by the
    dynamic linker, which finds versions in `.gnu.version_r`.
    """
    section = ELFFile(BytesIO(data)).get_section_by_name(".strtab")
    start, size = section["sh_offset"], section["sh_size"]
    names = data[start : start + size].split(b"\0")
    plain = (name.partition(b"@")[0].ljust(len(name), b"\0") for name in names)
    return data[:start] + b"\0".join(plain) + data[start + size :]


def for_another_cpu(data: bytes) -> bytes:
    """The library with the machine of its ELF header changed, x86-64 to AArch64 or back."""
    (machine,) = struct.unpack_from("<H", data, 18)
    return data[:18] + struct.pack("<H", 183 if machine == 62 else 62) + data[20:]


@lru_cache(maxsize=1)
def _ops() -> str:
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=False)  # noqa: S701
    return environment.get_template("ops_torch.py.j2").render(ops_name=ID) + "\n"


def _seal(root: Path, recipe: Recipe) -> None:
    metadata = Metadata("relu", ID, 1, "Apache-2.0", Variant.parse(recipe.variant).backend)
    metadata = replace(metadata, digest=digest_variant(root))
    (root / METADATA_FILE).write_text(replace(metadata, **recipe.metadata).to_json_text())


def _compiled(recipe: Recipe, folder: Path) -> bytes:
    folder.mkdir()
    source, target = folder / "binding.cpp", folder / "out.so"
    source.write_text(recipe.binding + recipe.source + "".join(_carried(recipe, folder)))
    libraries = [word for stub in recipe.stubs for word in _linked(stub, folder)]
    lld = recipe.linker == "lld" and shutil.which("ld.lld") is not None
    chosen = ["-fuse-ld=lld"] if lld else []
    _run("g++", *COMPILE, str(source), "-o", str(target), *libraries, *recipe.flags, *chosen)
    if recipe.strip:
        _run("strip", "--strip-all", str(target))
    data = target.read_bytes()
    return as_lld_writes(data) if recipe.linker == "lld" and not lld else data


def _linked(stub: Stub, folder: Path) -> Iterator[str]:
    """Arguments of the linker for a stand-in, which is made first."""
    source = folder / f"{stub.soname}.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in stub.symbols) or "int x;")
    target, options = folder / stub.soname, [f"-Wl,-soname,{stub.soname}"]
    if stub.version:
        script = folder / f"{stub.soname}.map"
        script.write_text(f"{stub.version} {{ global: {'; '.join(stub.symbols)}; local: *; }};\n")
        options.append(f"-Wl,--version-script={script}")
    _run("gcc", "-shared", "-fPIC", "-nostdlib", "-w", str(source), "-o", str(target), *options)
    yield from (["-Wl,--no-as-needed"] if stub.unused else [])
    yield str(target)
    yield "-Wl,--as-needed"


def _carried(recipe: Recipe, folder: Path) -> Iterator[str]:
    """Assembly that puts files' bytes into sections."""
    for name, data in recipe.sections.items():
        path = folder / f"{name.strip('.')}.bin"
        path.write_bytes(data)
        text = f'.section {name}, "a", @progbits\n.balign 8\n.incbin "{path}"\n.previous'
        yield f'__asm__(R"(\n{text}\n)");\n'


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: TID251
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}\n{done.stderr}")
