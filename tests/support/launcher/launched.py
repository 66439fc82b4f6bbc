"""Launchers for tests: images that say what they are, drivers that say what is launched."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild.dsl.launcher.files import launcher_files
from kbuild.dsl.launcher.resolved_kernel import ResolvedLaunch, ResolvedOp
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import BoundLaunch, KernelParameter
from kbuild.ops.expand import expand
from kbuild.ops.image import ImageParameter, KernelImage, UnitImage
from kbuild.ops.language import KernelFunction
from kbuild.ops.model import OpSpec
from kbuild.ops.tuned_tables import TunedTable
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.project.config.issue import IssueCollector
from kbuild.system.files import FileSet
from tests.support.launcher.functions import use_stream
from tests.support.sections import read
from tests.support.stores import shared_library

FAKES = Path(__file__).parents[1] / "fakes"
TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "int32": "i32",
    "int64": "i64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float64": "fp64",
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}
SIZES = {"i1": 1, "u1": 1, "i8": 1, "i16": 2, "fp16": 2, "bf16": 2, "i64": 8, "fp64": 8}
Change = Callable[[KernelUnit], Mapping[str, Any]]


@dataclass(frozen=True)
class Kernel:
    """A kernel function and what its images are like."""

    parameters: tuple[str, ...]
    """Its parameters; a `!` marks a constant."""
    change: Change = field(default=lambda _: {})
    """Fields of a unit's image that are not the usual ones."""
    floats: str = "fp32"


def ops_of(text: str) -> tuple[OpSpec, ...]:
    reading = read(text)
    assert [i for i in reading.issues if i.severity == "error"] == [], reading.issues
    return reading.ops


def launched(
    op: OpSpec,
    kernels: Mapping[str, Kernel],
    targets: Sequence[str],
    keep: Callable[[KernelUnit], bool] = lambda _: True,
) -> ResolvedOp:
    """The op with an image for each unit."""
    units = [unit for unit in expand(op, [ImageTarget.parse(t) for t in targets]) if keep(unit)]
    launches = []
    for index, launch in enumerate(op.launches):
        name = next(function for function in launch.functions if function in kernels)
        kernel = kernels[name]
        parameters = [KernelParameter(p.rstrip("!"), p.endswith("!")) for p in kernel.parameters]
        issues: list[Any] = []
        bound = bind(op, launch, {name: parameters}, IssueCollector(launch.path, issues))
        assert bound is not None, issues
        own = [unit for unit in units if unit.launch == index]
        compiled = tuple(compile_unit(unit, bound, kernel) for unit in own)
        function = KernelFunction(name, tuple(parameters))
        launches.append(ResolvedLaunch(op, launch, bound, function, compiled))
    return ResolvedOp(op, tuple(launches))


def compile_unit(unit: KernelUnit, bound: BoundLaunch, kernel: Kernel) -> UnitImage:
    """An image whose code says what it was compiled from, and how large its parameters are."""
    changes = dict(kernel.change(unit))
    parameters = changes.pop("parameters", None) or list(_parameters(unit, bound, kernel))
    names = {one.name: one for one in parameters}
    divisible = {n for n, one in names.items() if unit.aligned and one.kind == "pointer"}
    divisible |= set(unit.divisible) & names.keys()
    scratch = (ImageParameter("global_scratch", "*i8"), ImageParameter("profile_scratch", "*i8"))
    usual = {"shared": 0, "threads": 128, "divisible": frozenset(divisible)}
    image = KernelImage(
        language=unit.language,
        arch=unit.target.arch,
        kind=unit.target.kind,
        entry=bound.function,
        parameters=(*parameters, *scratch),
        ones=frozenset(unit.ones),
        **{**usual, **changes},
    )
    sizes = ",".join(str(_size(one)) for one in image.parameters)
    pairs = (*unit.constants, *unit.dtype_constants, *unit.options)
    facts = [str(unit.target), *(f"{n}={v}" for n, v in pairs)]
    facts += [f"{tensor}:{TYPES[dtype]}" for tensor, dtype in unit.dtypes[:1]]
    facts += [f"no-{name}" for name in unit.absent] + (["fast"] if unit.aligned else [])
    facts += [f"{name}%16" for name in unit.divisible]
    return UnitImage(unit, image, f"{' '.join(facts)} |{sizes}\0".encode())


def _parameters(unit: KernelUnit, bound: BoundLaunch, kernel: Kernel) -> Any:
    dtypes = dict(unit.dtypes)
    for name, source in bound.flat():
        if name in unit.ones or (source.kind == "tensor" and source.name in unit.absent):
            continue
        if source.kind == "tensor":
            yield ImageParameter("pointer", "*" + TYPES[dtypes[source.name]], name)
        elif source.kind == "float":
            yield ImageParameter("float", kernel.floats, name)
        elif source.kind == "bool":
            yield ImageParameter("int", "u1", name)
        elif source.kind == "int":
            yield ImageParameter("int", "i64" if name in unit.int64 else "i32", name)


def _size(parameter: ImageParameter) -> int:
    if parameter.kind == "tensor_map":
        return 128
    return 8 if parameter.type.startswith("*") else SIZES.get(parameter.type, 4)


def compiler(source: Path, target: Path, *flags: str) -> None:
    subprocess.run(  # noqa: TID251
        ("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", str(source), "-o",
         str(target), f"-Wl,-soname,{target.name}", "-pthread", *flags),
        check=True,
    )  # fmt: skip


def extension(files: FileSet, folder: Path, name: str, *flags: str) -> Path:
    """Compile a launcher for the CPU key of the Torch that is here."""
    import torch

    root = Path(torch.__file__).parent
    files.write(folder, manifest=False)
    target = folder / f"{name}.so"
    sources = [str(folder / path) for path, _ in files.items() if path.endswith(".cpp")]
    command = (
        *("g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"),
        *("-fvisibility=hidden", f"-DTORCH_EXTENSION_NAME={name}", "-DKBUILD_AOT_TEST_CPU"),
        *("-DTORCH_TARGET_VERSION=0x0209000000000000", f"-I{folder / 'aot'}"),
        *("-isystem", str(root / "include"), f"-Wa,-I{folder / 'aot'}", *flags, *sources),
        *(f"-L{root / 'lib'}", "-ltorch_cpu"),
    )
    shared_library(command, target, files, (folder, root))
    return target


class Driver:
    """The fake driver in this process."""

    def __init__(self, folder: Path) -> None:
        compiler(FAKES / "cuda_driver.c", folder / "libcuda.so.1")
        compiler(FAKES / "torch_cuda.c", folder / "libtorch_cuda.so")
        self.library = ctypes.CDLL(str(folder / "libcuda.so.1"))
        self.torch = ctypes.CDLL(str(folder / "libtorch_cuda.so"))
        self.library.fake_text.restype = ctypes.c_char_p
        self.library.fake_place.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.library.fake_unplace.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.torch.fake_use_stream.argtypes = [ctypes.c_int, ctypes.c_size_t]

    def said(self) -> list[str]:
        """All records since the last time."""
        return self.library.fake_text().decode().splitlines()

    def launches(self) -> list[Record]:
        return [Record(line) for line in self.said() if line.startswith("launch ")]

    def use_stream(self, device: int, stream: int) -> None:
        """Torch's current one, and TVM-FFI's in this thread."""
        self.torch.fake_use_stream(device, stream)
        if "tvm_ffi" in sys.modules:
            use_stream(device, stream)

    def device(self, index: int, name: str, major: int, minor: int, shared: int) -> None:
        self.library.fake_set(index, name.encode(), major, minor, shared)

    def place(self, tensor: Any, device: int) -> None:
        """Let it lie on a device for as long as it lives; its memory is another's afterwards."""
        storage = tensor.untyped_storage()
        memory = (storage.data_ptr(), storage.nbytes())
        self.library.fake_place(*memory, device)
        weakref.finalize(tensor, self.library.fake_unplace, *memory)


class Record:
    """One launch."""

    def __init__(self, line: str) -> None:
        self.line = line
        head, _, tail = line.removeprefix("launch ").partition(" entry=")
        self.image = head.strip()
        words = tail.split()
        pairs = [word.split("=", 1) for word in words[1:] if "=" in word]
        self.entry = words[0]
        self.attributes = [value for name, value in pairs if name == "attribute"]
        self.facts = {name: value for name, value in pairs if name != "attribute"}
        self.parameters = [bytes.fromhex(word) for word in words[1:] if "=" not in word]

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.facts["grid"].split(","))

    def integer(self, index: int) -> int:
        return int.from_bytes(self.parameters[index], sys.byteorder, signed=True)


def only_line(driver: Driver) -> str:
    (record,) = driver.launches()
    return record.line


def files_of(
    kernel: str, ops: Sequence[ResolvedOp], tables: Sequence[TunedTable] = (), **more: Any
) -> FileSet:
    return launcher_files(kernel, ops, tables, **{"module": False, **more})


__all__ = ["Driver", "Kernel", "extension", "files_of", "launched", "ops_of"]
