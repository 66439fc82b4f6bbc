"""Exported C without a DSL and without a GPU: made-up images, and a driver that counts."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from pathlib import Path

from kbuild.dsl.languages.triton.export.c_source import read_grid, write_source
from kbuild.dsl.languages.triton.export.signature import read_signature, variant_of
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.image import ImageParameter, KernelImage
from kbuild.ops.unit import ImageTarget
from kbuild.system.files import FileSet
from kbuild.system.processes import LocalRunner

HERE = Path(__file__).parent / "export"
ADD = "x_ptr, y_ptr, out_ptr, n, BLOCK!"
FAST = "*fp32:16, *fp32:16, *fp32:16, i32, 1024"
CODE = bytes(range(256)) + b'0??=\x001\x009\n"\\'


def parameters(text: str) -> list[KernelParameter]:
    names = [name.strip() for name in text.split(",")]
    return [KernelParameter(name.rstrip("!"), name.endswith("!")) for name in names]


def image_of(target: ImageTarget, arguments, **changes) -> KernelImage:
    kinds = {"*": "pointer", "f": "float", "b": "float"}
    own = [
        ImageParameter(kinds.get(a.type[0], "int"), a.type, a.name)
        for a in arguments
        if a.hint != 1
    ]
    changes = {"ones": frozenset(a.name for a in arguments if a.hint == 1), **changes}
    scratch = [ImageParameter("global_scratch", "*i8"), ImageParameter("profile_scratch", "*i8")]
    facts = {"shared": 0, "threads": 128, **changes}
    names = {"entry": "add_kernel", "parameters": (*own, *scratch)}
    return KernelImage("triton", target.arch, target.kind, **{**names, **facts})


def files(
    signature: str = FAST,
    names: str = ADD,
    grid: str = "cdiv(n, BLOCK)",
    target: str = "sm_80",
    options=(("num_warps", 4),),
    name: str = "add",
    **changes,
) -> FileSet:
    where = ImageTarget.parse(target)
    read = read_signature(signature, "add_kernel", parameters(names))
    axes = read_grid(grid, read)
    variant = variant_of(name, where, read, options, [str(axis) for axis in axes])
    image = image_of(where, variant.arguments, **changes)
    return write_source(variant, axes, image, CODE, name)


def symbol(exported: FileSet) -> str:
    """The launch function of one pair of files."""
    text = next(data.decode() for path, data in exported.items() if path.endswith(".h"))
    return text.split(":", 1)[0].removeprefix("/* ")


def compiled(folder: Path, *sets: FileSet, language: str = "c11") -> Path:
    """A library of all the files, and the driver beside it under both names."""
    sources = []
    for one in sets:
        one.write(folder, manifest=False)
        sources += [folder / path for path, _ in one.items() if path.endswith(".c")]
    compiler = ["gcc", "-std=c11"] if language == "c11" else ["g++", "-std=c++17", "-x", "c++"]
    strict = ["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-pthread"]
    library = folder / "exported.so"
    _done([*compiler, *strict, *sources, "-o", library])
    for soname in ("libcuda.so.1", "libamdhip64.so.6"):
        (folder / soname).write_bytes(fake_driver(soname))
    return library


@functools.cache
def fake_driver(soname: str) -> bytes:
    """The library that stands in for a vendor's driver."""
    fake = ["gcc", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{soname}", "-pthread"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, soname)
        _done([*fake, HERE / "fake_driver.c", "-o", library])
        return library.read_bytes()


def run(library: Path, script: str, driver: str = "libcuda.so.1"):
    """Run a script with `lib`, `fake`, `report` and the types of ctypes; returns what it says."""
    head = (HERE / "session.py").read_text("utf-8")
    command = [sys.executable, "-c", head + script, str(library), str(library.parent / driver)]
    return json.loads(_done(command))


def _done(command) -> str:
    done = LocalRunner().run([str(part) for part in command])
    assert done.returncode == 0, done.output
    return done.output
