"""The two files of a launcher."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kbuild import rendering
from kbuild.errors import BuildError
from kbuild.languages.image import UnitImage
from kbuild.languages.launcher.aten import AtenCode, demand_members, result_lines
from kbuild.languages.launcher.calls import call_struct
from kbuild.languages.launcher.cxx_text import c_identifier
from kbuild.languages.launcher.framework_adapters import (
    FrameworkAdapter,
    TorchAdapter,
    TvmFfiAdapter,
)
from kbuild.languages.launcher.images import ImageTables, object_files
from kbuild.languages.launcher.launch_variants import CompiledOp, LaunchVariants
from kbuild.languages.launcher.launches import LaunchCode, LaunchTable, measured_on, rows_of
from kbuild.languages.unit import CPU_TARGET, ImageTarget
from kbuild.ops.expression import arithmetic_header
from kbuild.ops.model import OpSpec
from kbuild.ops.tuned_tables import TunedTable
from kbuild.runtime.files import FileSet, sha256

FOLDER = "aot"
ADAPTERS: Mapping[str, FrameworkAdapter] = {
    host.name: host for host in (TorchAdapter(), TvmFfiAdapter())
}
_MOST_SLOTS = 128
"""Arguments of a launch; a byte says which of them a parameter is, see `images.h`."""
_WORD = 64
_MOST_DECIDED = 16
_FEWER = "fix some of them, or make fewer dimensions of its tensors"
_WIDE_BITS = "unsigned __int128"


def launcher_files(
    kernel: str,
    ops: Sequence[CompiledOp],
    tables: Sequence[TunedTable] = (),
    *,
    module: bool,
    control: bool = False,
    framework: str = "torch",
) -> FileSet:
    """`aot/<kernel>.cpp` and `aot/<kernel>.bin`; with objects, `aot/<kernel>/*.o` in its place.

    The source is compiled as C++20 with the framework's headers and `-Wa,-I<folder of the .bin>`,
    for Torch with `TORCH_EXTENSION_NAME`. It holds the digest of the images, so that caches see a
    change. The same input gives the same files.

    Args:
        kernel: the name of the `[kernel.*]` section.
        ops: its ops, each with everything that was compiled for it.
        tables: what was measured on GPUs.
        module: also define the Python module, for Torch extensions without bindings of their own.
        control: also define the op `_kbuild_choose(int launch, int candidate)`: it makes a launch
            take one candidate, or with -1 the usual one. Launches are counted over all ops.
        framework: what calls the ops, `torch` or `tvm-ffi`.

    Raises:
        ValueError: an op has no images, they want arguments that nothing gives, or the framework
            cannot offer it.
        BuildError: a launch has more arguments than there is room for.
    """
    host = ADAPTERS[framework]
    for op in ops:
        host.judge(op.spec)
        if not any(launch.compiled for launch in op.launches):
            raise ValueError(f"`{op.spec.name}` has no images")
    parts = [_KernelLaunch(op, index, at, tables) for at, (op, index) in enumerate(_launches(ops))]
    for part in parts:
        part.judge()
    is_word = all(len(part.variants.slots) <= _WORD for part in parts)  # a bit for each argument
    images = ImageTables(bits="uint64_t" if is_word else _WIDE_BITS)
    arrays = "".join(part.table(control=control).arrays(images) for part in parts)
    blob, objects = bytes(images.blob), images.objects
    if blob and objects:
        raise ValueError(f"`{kernel}` has images of two kinds")
    source = rendering.render(
        "launcher/launcher.cpp.j2",
        kernel=kernel,
        tables=images.tables(),
        measured=measured_on(tables),
        arrays=arrays,
        launches=[part.table(control=control).entry() for part in parts],
        functions=[
            *(part.code(control=control).function() for part in parts),
            *(
                AtenCode(op.spec, at, op.on_demand).function()
                for op in ops
                for at in range(len(op.spec.aten))
            ),
        ],
        **_framework_values(host, ops, module=module, control=control),
        **_image_values(kernel, images),
        **_runtime(host, _driver(images.archs), objects),
        fill=_fill(ops, _driver(images.archs)),
        bits=images.bits,
    )
    files = FileSet({f"{FOLDER}/{kernel}.cpp": source})
    if not objects:
        return files.merge(FileSet({f"{FOLDER}/{kernel}.bin": blob}))
    return files.merge(object_files(FOLDER, kernel, objects))


def _framework_values(
    host: FrameworkAdapter, ops: Sequence[CompiledOp], *, module: bool, control: bool
) -> dict[str, object]:
    """What depends on who calls the ops."""
    specs = [op.spec for op in ops]
    calls = [
        call_struct(op.spec, host, op.on_demand, demand_members(op.spec, op.on_demand))
        for op in ops
    ]
    described = [
        host.op(
            op.spec, {name: result_lines(op.spec, name, op.on_demand) for name in op.spec.results}
        )
        for op in ops
    ]
    return {
        "host_words": host.words,
        "includes": host.includes,
        "registration": host.registration(module=module),
        "views": _views(host, specs),
        "calls": calls,
        "host_ops": host.text(ops=described, module=module, control=control),
    }


def _views(host: FrameworkAdapter, ops: Sequence[OpSpec]) -> str:
    """What views and ATen calls need, where an op has some."""
    parts = []
    if any(op.views for op in ops):
        parts += [rendering.read("launcher/view_tensor.h"), host.header("view")]
    if any(op.aten for op in ops):
        parts.append(host.header("aten"))
    return "".join(parts)


def _image_values(kernel: str, images: ImageTables) -> dict[str, object]:
    """Where the code of the images is."""
    code = bytes(images.blob) or b"".join(unit_image.code for unit_image in images.objects)
    return {
        "symbol": f"kbuild_aot_{c_identifier(kernel)}",
        "blob": not images.objects,
        "on_cpu": CPU_TARGET in images.archs,
        "digest": sha256(code),
    }


_COMMON = ("base", "view", "arguments", "tensors", "images", "choice", "start")
_OF_HOST = ("tensor", "memory")
_OF_DRIVER = ("driver", "device", "run")
_OF_OBJECTS = ("driver", "device")
_ONCE = "#pragma once\n"
_CONVENTIONS = {"c": "object_c", "tvm-ffi": "object_tvm_ffi"}
"""Of objects -> what calls them."""


def _driver(targets: Sequence[ImageTarget]) -> str:
    """Whose devices the images are for."""
    if CPU_TARGET in targets:
        return "cpu"
    return "hip" if any(target.arch.startswith("gfx") for target in targets) else "cuda"


def _runtime(host: FrameworkAdapter, driver: str, objects: Sequence[UnitImage]) -> dict[str, str]:
    """The parts that are the same in every launcher for one driver."""
    common = {name: rendering.read(f"launcher/{name}.h") for name in _COMMON}
    names = _OF_OBJECTS if objects else _OF_DRIVER
    own = {name: rendering.read(f"launcher/{driver}_{name}.h") for name in names}
    hosted = {name: host.header(name) for name in _OF_HOST}
    headers = {**common, **own, **hosted, "arithmetic": arithmetic_header().replace(_ONCE, "")}
    if not objects:
        return {**headers, "object": ""}
    run = rendering.read("launcher/object_run.h")
    return {**headers, "object": _conventions(host, objects), "run": run}


def _fill(ops: Sequence[CompiledOp], driver: str) -> str:
    """What gives tensors a value before the launches, where an op does that."""
    if not any(op.spec.fills for op in ops):
        return ""
    return "".join(rendering.read(f"launcher/{name}.h") for name in (f"{driver}_fill", "fill"))


def _conventions(host: FrameworkAdapter, objects: Sequence[UnitImage]) -> str:
    """What calls objects, and what they call back."""
    kinds = sorted({unit_image.image.convention for unit_image in objects})
    launch = rendering.read("launcher/object_launch.h")
    back = host.header("object") + launch if "tvm-ffi" in kinds else ""
    calls = "".join(rendering.read(f"launcher/{_CONVENTIONS[kind]}.h") for kind in kinds)
    has_library = any(unit_image.image.loading == "library" for unit_image in objects)
    return back + calls + (rendering.read("launcher/object_library.h") if has_library else "")


def _launches(ops: Sequence[CompiledOp]) -> Iterator[tuple[CompiledOp, int]]:
    return itertools.chain.from_iterable(
        ((op, index) for index in range(len(op.launches))) for op in ops
    )


@dataclass(frozen=True)
class _KernelLaunch:
    """One launch among all of the kernel."""

    op: CompiledOp
    index: int
    """Among the op's."""
    at: int
    """Among the kernel's."""
    tables: Sequence[TunedTable]

    @property
    def name(self) -> str:
        return f"{self.op.spec.name}_{self.index}"

    @property
    def variants(self) -> LaunchVariants:
        return LaunchVariants(self.op.spec, self.op.launches[self.index])

    def judge(self) -> None:
        """Refuse what the generated code has no room for."""
        variants = self.variants
        function = variants.launched.bound.function
        if not variants.all and not variants.is_conditional:
            raise ValueError(f"`{function}` of `{self.op.spec.name}` has no images")
        if len(variants.slots) > _MOST_SLOTS:
            what = f"{len(variants.slots)} arguments; a launch has at most {_MOST_SLOTS}"
            raise BuildError(f"`{function}` has {what}", hint=_FEWER)
        if len(variants.decided) > _MOST_DECIDED:
            what = f"{len(variants.decided)} constants that each call decides"
            raise BuildError(
                f"`{function}` has {what}; a launch has at most {_MOST_DECIDED}", hint=_FEWER
            )

    def table(self, *, control: bool) -> LaunchTable:
        rows = rows_of(self.variants, self.index, self.tables)
        return LaunchTable(self.variants, self.name, rows, control)

    def code(self, *, control: bool) -> LaunchCode:
        tuned = bool(rows_of(self.variants, self.index, self.tables))
        return LaunchCode(self.variants, self.name, self.at, tuned, control, self.op.on_demand)
