"""Images that are linked: relocatable objects whose C function launches the code within them.

There are two calling conventions. Each object gets a function `call_<n>` that puts the values of a
call where its convention wants them:

- `tvm-ffi`: `int SYMBOL(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny* result)`; what it
  calls back of TVM-FFI is defined by `torch_object.h`, so that Torch needs no library for it.
- `c`: `int SYMBOL(<pointers and numbers>..., void* stream)`, 0 when it worked, else
  `const char* SYMBOL_error(void)` says what did not.

An object's code is loaded before its first call, for the device that is used and for no other, so
that a host may have GPUs that it is not for, and a captured call loads nothing:

- `function`: `int SYMBOL_load(void)` does that for the current device; errors are as those of `c`.
- `library`: CuTe DSL's runtime lets the first call ask an object's `cuda_init` for its library, and
  then its `cuda_load_to_device` to make it ready for all devices. The launcher replaces both, which
  are weak symbols of the joined object, and calls them by second names that end in `_own`.

Whatever CuTe DSL's objects launch, they launch on the stream of the call, also where their host
function takes none: its runtime calls the launcher's `kbuild_aot_launch` for it.

Every symbol of an object has `kbuild_aot_` in its name; the linker exports none of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.fileset import FileSet
from kbuild.languages.base import Linked
from kbuild.languages.compiled import Compiled
from kbuild.languages.image import Image, Parameter
from kbuild.languages.launcher.text import array

_C_INTEGERS = {"i64": "int64_t", "u64": "uint64_t", "i32": "int32_t", "u32": "uint32_t"} | {
    f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}_t" for sign in "iu" for bits in (8, 16)
}
_HIDDEN = 'extern "C" __attribute__((visibility("hidden")))'
_TVM_FFI = "__tvm_ffi_"
_LAUNCH = "cudaLaunchKernelExC=kbuild_aot_launch"
"""What CuTe DSL's runtime launches with, and what the launcher puts in its place."""
_C_FLOATS = {"fp32": ("float", "f32"), "fp64": ("double", "f64")}


def object_calls(objects: Sequence[Compiled]) -> str:
    """The C++ that calls the objects: one function each, and the table `objects` of them."""
    images = [one.image for one in objects]
    made = {"c": _c_call, "tvm-ffi": _tvm_ffi_call}
    calls = "\n".join(made[image.convention](at, image) for at, image in enumerate(images))
    words = sorted({f"{name} {version}" for i in images for name, version in i.compiler.items()})
    return (
        "}  // namespace\n\n"
        + "".join(map(_declaration, images))
        + "\nnamespace {\n\n"
        + "struct Object {\n"
        + "  const char* (*call)(const Value* const*, const Device&, void*);\n"
        + "  const char* (*load)(const Device&);\n};\n\n"
        + f"{calls}\n"
        + "".join(_loader(at, image) for at, image in enumerate(images))
        + array("Object", "objects", (_object(at, image) for at, image in enumerate(images)))
        + f"constexpr int kObjects = {len(images)};\n\n"
        + f'const char* const compiled_by = "{", ".join(words)}";\n'
    )


def object_files(folder: str, kernel: str, objects: Sequence[Compiled]) -> FileSet:
    """`<kernel>/<entry>.o` for each, and `<kernel>.cmake`, which lists them."""
    files = {f"{folder}/{kernel}/{one.image.entry}.o": one.code for one in objects}
    names = "".join(f"\n    {kernel}/{one.image.entry}.o" for one in objects)
    text = f"# Written by kbuild: the objects of the launcher {kernel}.cpp.\nset(objects{names})\n"
    if any(one.image.convention == "tvm-ffi" for one in objects):
        text += f"set(launches --redefine-sym={_LAUNCH})\n"
    replaced = [one.image for one in objects if one.image.loading == "library"]
    if replaced:
        own = (f"{name}_own = {name};\n" for image in replaced for name in _hooks(image))
        files[f"{folder}/{kernel}.ld"] = "".join(own).encode()
        text += f"set(aliases {kernel}.ld)\n"
    return FileSet({**files, f"{folder}/{kernel}.cmake": text})


def linked_file(kernel: str, linked: Linked, hip: int | None = None) -> FileSet:
    """`aot/<kernel>.libraries.cmake`: what the objects are linked with, on this machine.

    Args:
        kernel: the launcher's name.
        linked: what the language says.
        hip: the major release of the HIP runtime, where that is needed.
    """
    archives = "".join(f"\n    [==[{path}]==]" for path in linked.archives)
    text = (
        f"# Written by kbuild: what the objects of {kernel}.cpp are linked with.\n"
        f'set(archives{archives})\nset(cudart "{linked.cudart}")\n'
        + (f'set(amdhip64 "{hip}")\n' if hip is not None else "")
    )
    return FileSet({f"aot/{kernel}.libraries.cmake": text})


def _declaration(image: Image) -> str:
    if image.convention == "tvm-ffi":
        # Hidden: extensions for TVM-FFI offer what is called `__tvm_ffi_*`.
        return (
            f'extern "C" __attribute__((visibility("hidden"))) int {image.entry}('
            "void*, const kbuild::FfiAny*, int32_t, kbuild::FfiAny*);\n"
        )
    types = ", ".join((*(_c_type(one) for one in image.parameters), "void*"))
    error = f'extern "C" const char* {image.entry}_error(void);\n'
    return f'extern "C" int {image.entry}({types});\n{error}'


def _hooks(image: Image) -> tuple[str, str]:
    """The functions of a library of CuTe DSL's that its runtime calls."""
    prefix = f"__cute_internal_{image.entry.removeprefix(_TVM_FFI)}"
    return f"{prefix}_cuda_init", f"{prefix}_cuda_load_to_device"


def _loader(at: int, image: Image) -> str:
    """The function `load_<n>`, for objects that can be told to."""
    if image.loading == "function":
        return (
            f'}}  // namespace\nextern "C" int {image.entry}_load(void);\nnamespace {{\n'
            f"const char* load_{at}(const Device&) {{\n"
            f"  return {image.entry}_load() == 0 ? nullptr : error_of({image.entry}_error());\n"
            "}\n\n"
        )
    if image.loading != "library":
        return ""
    init, load = _hooks(image)
    return (
        f"ObjectLibrary library_{at};\n}}  // namespace\n"
        f'extern "C" int {init}_own(void**);\nextern "C" int {load}_own(void**, int32_t);\n'
        f"{_HIDDEN} int {init}(void** library) {{\n"
        f"  return library_{at}.give(library, &{init}_own);\n}}\n"
        f"{_HIDDEN} int {load}(void**, int32_t) {{ return 0; }}\nnamespace {{\n"
        f"const char* load_{at}(const Device& device) {{\n"
        f"  return library_{at}.load(device, &{init}_own, &{load}_own);\n}}\n\n"
    )


def _object(at: int, image: Image) -> str:
    return f"{{&call_{at}, {f'&load_{at}' if image.loading else 'nullptr'}}}"


def _tvm_ffi_call(at: int, image: Image) -> str:
    count = len(image.parameters)
    lines = [f"  args.{_packed(one, index)};" for index, one in enumerate(image.parameters)]
    body = "\n".join(lines)
    return (
        f"const char* call_{at}(const Value* const* values, const Device& device, "
        "void* stream) {\n"
        f"  FfiArguments<{max(1, count)}> args(device.index);\n{body}\n"
        f"  return args.call(&{image.entry}, {count}, stream);\n}}\n"
    )


def _packed(parameter: Parameter, index: int) -> str:
    value = f"values[{index}]"
    if parameter.kind in ("tensor", "flat"):
        is_flat = "true" if parameter.kind == "flat" else "false"
        return f"add(*static_cast<const Tensor*>({value}->p), {is_flat})"
    if parameter.kind == "float":
        return f"add({value}->f64)"
    return f"add({value}->i{', true' if parameter.type in ('i1', 'u1') else ''})"


def _c_call(at: int, image: Image) -> str:
    given = [_c_value(one, f"values[{index}]") for index, one in enumerate(image.parameters)]
    arguments = ", ".join((*given, "stream"))
    return (
        f"const char* call_{at}(const Value* const* values, const Device&, void* stream) {{\n"
        "  (void)values;\n"
        f"  if ({image.entry}({arguments}) == 0) return nullptr;\n"
        f"  return error_of({image.entry}_error());\n}}\n"
    )


def _c_type(parameter: Parameter) -> str:
    if parameter.kind == "pointer":
        return "void*"
    if parameter.kind == "float" and parameter.type in _C_FLOATS:
        return _C_FLOATS[parameter.type][0]
    if parameter.kind == "int":
        return _C_INTEGERS.get(parameter.type, "bool")
    raise ValueError(f"`{parameter.name}`: a C function takes no {parameter.type}")


def _c_value(parameter: Parameter, value: str) -> str:
    if parameter.kind == "pointer":
        return f"{value}->p"
    if parameter.kind == "float":
        return f"{value}->{_C_FLOATS[parameter.type][1]}"
    return f"{_c_type(parameter)}({value}->i)"
