"""Generates a launcher: its C++ source, and the images or objects that belong to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kbuild.dsl.launcher.aten import AtenCode, demand_members, result_lines
from kbuild.dsl.launcher.calls import call_struct
from kbuild.dsl.launcher.cxx_text import c_identifier
from kbuild.dsl.launcher.framework_adapters import FrameworkAdapter, TorchAdapter, TvmFfiAdapter
from kbuild.dsl.launcher.images import ImageTables
from kbuild.dsl.launcher.launches import LaunchCode, measured_on, rows_of
from kbuild.dsl.launcher.objects import object_files
from kbuild.dsl.launcher.resolved_kernel import ResolvedLaunch, ResolvedOp
from kbuild.ops.expression import arithmetic_header
from kbuild.ops.image import UnitImage
from kbuild.ops.model import OpSpec
from kbuild.ops.tuned_tables import TunedTable
from kbuild.ops.unit import CPU_TARGET, ImageTarget
from kbuild.system import rendering
from kbuild.system.errors import BuildError
from kbuild.system.files import FileSet, sha256

FOLDER = "aot"
ADAPTERS: Mapping[str, FrameworkAdapter] = {
    host.name: host for host in (TorchAdapter(), TvmFfiAdapter())
}
_MOST_SLOTS = 128
"""Limit of a launch's arguments; a parameter names its argument with a byte, see `images.h`."""
_WORD = 64
# Length of the array `constants` of `Fate` in `choice.h`.
_MOST_DECIDED = 16
_FEWER = "fix some of them, or use tensors with fewer dimensions"
_WIDE_BITS = "unsigned __int128"


def launcher_files(
    kernel: str,
    ops: Sequence[ResolvedOp],
    tables: Sequence[TunedTable] = (),
    *,
    module: bool,
    control: bool = False,
    framework: str = "torch",
) -> FileSet:
    """Generate `aot/<kernel>.cpp` and `aot/<kernel>.bin`; `aot/<kernel>/*.o` for objects.

    The source is compiled as C++20 with the framework's headers and `-Wa,-I<folder of the .bin>`,
    for Torch with `TORCH_EXTENSION_NAME`. It holds the digest of the images, so that caches see a
    change. The same input gives the same files.

    Args:
        kernel: the name of the `[kernel.*]` section.
        ops: its ops, each with everything that was compiled for it.
        tables: tuned tables of GPU models.
        module: also define the Python module, for Torch extensions without bindings of their own.
        control: also define the op `_kbuild_choose(int launch, int candidate)`: it forces a
            launch to use one candidate, or with -1 the normal one. Launches are counted over all
            ops.
        framework: the framework that calls the ops, `torch` or `tvm-ffi`.

    Raises:
        ValueError: an op has no images, they take arguments that no launch passes, or the framework
            does not support it.
        BuildError: a launch has more arguments than there is room for.
    """
    host = ADAPTERS[framework]
    launches = _launches(host, ops, tables, control=control)
    is_word = all(len(code.resolved.slots) <= _WORD for code in launches)  # one bit per value
    images = ImageTables(bits="uint64_t" if is_word else _WIDE_BITS)
    # This fills `images`, and so has to precede everything that reads its tables.
    arrays = "".join(code.arrays(images) for code in launches)
    device_code = _device_code(kernel, images)
    source = rendering.render(
        "launcher/launcher.cpp.j2",
        kernel=kernel,
        # Parts that depend on the framework.
        framework=host.title,
        includes=host.includes,
        registration=host.registration(module=module),
        host_ops=_host_ops(host, ops, images, module=module, control=control),
        # Tables of images, and the location of their code.
        **_image_values(images, device_code),
        symbol=f"kbuild_aot_{c_identifier(kernel)}",
        # The launches.
        measured=measured_on(tables),
        arrays=arrays,
        launches=[code.entry() for code in launches],
        **_functions(host, ops, launches),
        # Headers, which are the same in every launcher for one driver.
        **_headers(host, images, [op.spec for op in ops]),
    )
    files = FileSet({f"{FOLDER}/{kernel}.cpp": source})
    if images.objects:
        return files.merge(object_files(FOLDER, kernel, images.objects))
    return files.merge(FileSet({f"{FOLDER}/{kernel}.bin": device_code}))


def _host_ops(
    host: FrameworkAdapter, ops: Sequence[ResolvedOp], images: ImageTables, **options: bool
) -> str:
    """C++ code that defines the ops."""
    exports = any(each.image.convention == "export" for each in images.objects)
    return host.text(ops=[*_entries(host, ops)], exports=exports, **options)


def _device_code(kernel: str, images: ImageTables) -> bytes:
    """The bytes that the launcher's digest is of.

    Raises:
        ValueError: there are objects and other images.
    """
    if images.blob and images.objects:
        raise ValueError(f"`{kernel}` has images of two kinds")
    # Objects are linked from files of their own: here they count for the digest only.
    return bytes(images.blob) or b"".join(image.code for image in images.objects)


def _image_values(images: ImageTables, device_code: bytes) -> dict[str, object]:
    """Values of the launcher's template that follow from the images."""
    return {
        "tables": images.tables(),
        "bits": images.bits,
        "blob": not images.objects,
        "on_cpu": CPU_TARGET in images.archs,
        "digest": sha256(device_code),
    }


def _entries(host: FrameworkAdapter, ops: Sequence[ResolvedOp]) -> Iterator[Mapping[str, object]]:
    """Yield what is registered: each op, and its projections, which return some results."""
    for op in ops:
        returning = {name: result_lines(op.spec, name, op.on_demand) for name in op.spec.results}
        yield host.op(op.spec, returning)
        for projection in op.spec.projections:
            yield host.projection(op.spec, projection, returning)


def _functions(
    host: FrameworkAdapter, ops: Sequence[ResolvedOp], launches: Sequence[LaunchCode]
) -> dict[str, list[str]]:
    """C++ code of the ops' calls, and of their launches and ATen calls."""
    functions = [code.function() for code in launches]
    calls = []
    for op in ops:
        members = demand_members(op.spec, op.on_demand)
        calls.append(call_struct(op.spec, host, op.on_demand, members))
        aten = (AtenCode(op.spec, at, op.on_demand) for at in range(len(op.spec.aten)))
        functions += [code.function() for code in aten]
    return {"calls": calls, "functions": functions}


_COMMON = ("base", "view", "arguments", "tensors", "images", "choice", "start")
_ONCE = "#pragma once\n"
_CONVENTIONS = {"c": "object_c", "tvm-ffi": "object_tvm_ffi", "export": "object_export"}
"""Calling convention of an object -> header for it."""


def _driver(targets: Sequence[ImageTarget]) -> str:
    """Name of the driver that the images are launched with."""
    if CPU_TARGET in targets:
        return "cpu"
    return "hip" if any(target.is_amd for target in targets) else "cuda"


def _headers(host: FrameworkAdapter, images: ImageTables, ops: Sequence[OpSpec]) -> dict[str, str]:
    """Headers of the launcher by name; those for fills, views and ATen calls only where needed."""
    driver, objects = _driver(images.archs), images.objects
    names = {name: name for name in _COMMON}
    names |= {name: f"{driver}_{name}" for name in ("driver", "device")}
    names["run"] = "object_run" if objects else f"{driver}_run"
    headers = {name: rendering.read(f"launcher/{file}.h") for name, file in names.items()}
    if not objects:
        # Only images in the blob may be compressed; objects are linked as they are.
        headers["run"] = rendering.read("launcher/inflate.h") + headers["run"]
    fills = (f"{driver}_fill", "fill") if any(op.fills for op in ops) else ()
    views = ""
    if any(op.views for op in ops):
        views += rendering.read("launcher/view_tensor.h") + host.header("view")
    if any(op.aten for op in ops):
        views += host.header("aten")
    return {
        **headers,
        **{name: host.header(name) for name in ("tensor", "memory")},
        # Headers become part of a C++ source, in which GCC warns of `#pragma once`.
        "arithmetic": arithmetic_header().replace(_ONCE, ""),
        "object": _conventions(host, objects) if objects else "",
        "fill": "".join(rendering.read(f"launcher/{name}.h") for name in fills),
        "views": views,
    }


def _conventions(host: FrameworkAdapter, objects: Sequence[UnitImage]) -> str:
    """Headers for calling objects, and for the functions that objects call back."""
    kinds = {unit_image.image.convention for unit_image in objects}
    launch = rendering.read("launcher/object_launch.h")
    errors = rendering.read("launcher/object_errors.h")
    back = host.header("object") + errors + launch if kinds & {"tvm-ffi", "export"} else ""
    calls = "".join(rendering.read(f"launcher/{_CONVENTIONS[kind]}.h") for kind in sorted(kinds))
    has_library = any(unit_image.image.loading == "library" for unit_image in objects)
    return back + calls + (rendering.read("launcher/object_library.h") if has_library else "")


def _launches(
    host: FrameworkAdapter,
    ops: Sequence[ResolvedOp],
    tables: Sequence[TunedTable],
    *,
    control: bool,
) -> list[LaunchCode]:
    """Return the code of each launch of the kernel.

    Raises:
        ValueError: a launch has no images, or the framework does not support an op.
        BuildError: the generated code has no room for it.
    """
    launches: list[LaunchCode] = []
    for op in ops:
        host.validate(op.spec)
        if not any(launch.compiled for launch in op.launches):
            raise ValueError(f"`{op.spec.name}` has no images")
        for index, launch in enumerate(op.launches):
            _validate_room(op, launch)
            name, rows = f"{op.spec.name}_{index}", rows_of(launch, index, tables)
            launches.append(LaunchCode(launch, name, len(launches), rows, control, op.on_demand))
    return launches


def _validate_room(op: ResolvedOp, launch: ResolvedLaunch) -> None:
    function = f"`{launch.bound.function}`"
    if not launch.variants and not launch.is_conditional:
        raise ValueError(f"{function} of `{op.spec.name}` has no images")
    if len(launch.slots) > _MOST_SLOTS:
        what = f"{len(launch.slots)} arguments; a launch has at most {_MOST_SLOTS}"
        raise BuildError(f"{function} has {what}", hint=_FEWER)
    if len(launch.decided) > _MOST_DECIDED:
        what = f"{len(launch.decided)} constants that each call decides"
        message = f"{function} has {what}; a launch has at most {_MOST_DECIDED}"
        raise BuildError(message, hint=_FEWER)
