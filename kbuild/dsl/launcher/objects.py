"""C++ that calls linked objects, and the files that link them.

An object is a relocatable file whose C function launches the device code within it; the calling
and loading conventions are those of `KernelImage`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.dsl.launcher.cxx_text import cxx_array
from kbuild.ops.image import ImageParameter, KernelImage, UnitImage
from kbuild.ops.language import LinkInputs
from kbuild.system.files import FileSet

_C_INTEGERS = {"i64": "int64_t", "u64": "uint64_t", "i32": "int32_t", "u32": "uint32_t"} | {
    f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}_t" for sign in "iu" for bits in (8, 16)
}
_HIDDEN = 'extern "C" __attribute__((visibility("hidden")))'
_LAUNCH = "cudaLaunchKernelExC=kbuild_aot_launch"
"""Objects call the launcher's function in place of the CUDA runtime's; a `--redefine-sym` pair."""
_C_FLOATS = {"fp32": ("float", "f32"), "fp64": ("double", "f64")}


def object_call_code(objects: Sequence[UnitImage]) -> str:
    """C++ code that calls objects: a function for each, and the table `objects` of them."""
    images = [unit_image.image for unit_image in objects]
    generators = {"c": _c_call, "tvm-ffi": _tvm_ffi_call, "export": _export_call}
    calls = "\n".join(generators[image.convention](at, image) for at, image in enumerate(images))
    compilers = {f"{name} {version}" for i in images for name, version in i.compiler.items()}
    return (
        "}  // namespace\n\n"
        + "".join(map(_declaration, images))
        + "\nnamespace {\n\n"
        + "struct Object {\n"
        + "  const char* (*call)(const Value* const*, const Device&, void*);\n"
        + "  const char* (*load)(const Device&);\n};\n\n"
        + f"{calls}\n"
        + "".join(_loader(at, image) for at, image in enumerate(images))
        + cxx_array(
            "Object",
            "objects",
            (
                f"{{&call_{at}, {f'&load_{at}' if image.loading else 'nullptr'}}}"
                for at, image in enumerate(images)
            ),
        )
        + f"constexpr int kObjects = {len(images)};\n\n"
        + f'const char* const compiled_by = "{", ".join(sorted(compilers))}";\n'
    )


def object_files(folder: str, kernel: str, objects: Sequence[UnitImage]) -> FileSet:
    """Files of the objects, `<kernel>/<entry>.o`, and `<kernel>.cmake`, which lists them."""
    files = {
        f"{folder}/{kernel}/{unit_image.image.entry}.o": unit_image.code for unit_image in objects
    }
    names = "".join(f"\n    {kernel}/{unit_image.image.entry}.o" for unit_image in objects)
    text = f"# Written by kbuild: the objects of the launcher {kernel}.cpp.\nset(objects{names})\n"
    if any(unit_image.image.convention == "tvm-ffi" for unit_image in objects):
        text += f"set(launches --redefine-sym={_LAUNCH})\n"
    replaced = [unit_image.image for unit_image in objects if unit_image.image.loading == "library"]
    if replaced:
        renames = (f"{name}_own = {name};\n" for image in replaced for name in image.load_functions)
        # The launcher replaces these functions, and calls the object's by their second names.
        files[f"{folder}/{kernel}.ld"] = "".join(renames).encode()
        text += f"set(aliases {kernel}.ld)\n"
    return FileSet({**files, f"{folder}/{kernel}.cmake": text})


def link_libraries_file(kernel: str, linked: LinkInputs, hip: int | None = None) -> FileSet:
    """`aot/<kernel>.libraries.cmake`: what the objects are linked with, on this machine.

    `hip` is the major release of the HIP runtime, if the objects need it.
    """
    archives = "".join(f"\n    [==[{path}]==]" for path in linked.archives)
    text = (
        f"# Written by kbuild: what the objects of {kernel}.cpp are linked with.\n"
        f'set(archives{archives})\nset(cudart "{linked.cudart}")\n'
        + (f'set(amdhip64 "{hip}")\n' if hip is not None else "")
    )
    return FileSet({f"aot/{kernel}.libraries.cmake": text})


def _declaration(image: KernelImage) -> str:
    if image.convention != "c":
        # Hidden: TVM-FFI would offer exported symbols `__tvm_ffi_*` as functions of the extension.
        types = "void*, const kbuild::FfiAny*, int32_t, kbuild::FfiAny*"
        return f"{_HIDDEN} int {image.entry}({types});\n"
    types = ", ".join((*(_c_type(parameter) for parameter in image.parameters), "void*"))
    error = f'extern "C" const char* {image.entry}_error(void);\n'
    return f'extern "C" int {image.entry}({types});\n{error}'


def _loader(at: int, image: KernelImage) -> str:
    """C++ function `load_<n>`, for objects that load their code on request."""
    if image.loading == "function":
        return (
            f'}}  // namespace\nextern "C" int {image.entry}_load(void);\nnamespace {{\n'
            f"const char* load_{at}(const Device&) {{\n"
            f"  return {image.entry}_load() == 0 ? nullptr : error_of({image.entry}_error());\n"
            "}\n\n"
        )
    if image.loading != "library":
        return ""
    init, load = image.load_functions
    return (
        f"ObjectLibrary library_{at};\n}}  // namespace\n"
        f'extern "C" int {init}_own(void**);\nextern "C" int {load}_own(void**, int32_t);\n'
        f"{_HIDDEN} int {init}(void** library) {{\n"
        f"  return library_{at}.give(library, &{init}_own);\n}}\n"
        f"{_HIDDEN} int {load}(void**, int32_t) {{ return 0; }}\nnamespace {{\n"
        f"const char* load_{at}(const Device& device) {{\n"
        f"  return library_{at}.load(device, &{init}_own, &{load}_own);\n}}\n\n"
    )


def _tvm_ffi_call(at: int, image: KernelImage) -> str:
    count, parameters = len(image.parameters), enumerate(image.parameters)
    body = "\n".join(f"  args.{_packed(parameter, index)};" for index, parameter in parameters)
    return (
        f"const char* call_{at}(const Value* const* values, const Device& device, "
        "void* stream) {\n"
        f"  FfiArguments<{max(1, count)}> args(device.index);\n{body}\n"
        f"  return args.call(&{image.entry}, {count}, stream);\n}}\n"
    )


def _packed(parameter: ImageParameter, index: int) -> str:
    value = f"values[{index}]"
    if parameter.kind in ("tensor", "flat"):
        is_flat = str(parameter.kind == "flat").lower()
        return f"add(*static_cast<const Tensor*>({value}->p), {is_flat})"
    if parameter.kind == "float":
        return f"add({value}->f64)"
    return f"add({value}->i{', true' if parameter.type in ('i1', 'u1') else ''})"


def _export_call(at: int, image: KernelImage) -> str:
    head = f"const char* call_{at}(const Value* const*, const Device&, void*)"
    return f"{head} {{\n  exported = &{image.entry};\n  return nullptr;\n}}\n"


def _c_call(at: int, image: KernelImage) -> str:
    values = [_c_value(p, f"values[{index}]") for index, p in enumerate(image.parameters)]
    arguments = ", ".join((*values, "stream"))
    return (
        f"const char* call_{at}(const Value* const* values, const Device&, void* stream) {{\n"
        "  (void)values;\n"
        f"  if ({image.entry}({arguments}) == 0) return nullptr;\n"
        f"  return error_of({image.entry}_error());\n}}\n"
    )


def _c_type(parameter: ImageParameter) -> str:
    if parameter.kind == "pointer":
        return "void*"
    if parameter.kind == "float" and parameter.type in _C_FLOATS:
        return _C_FLOATS[parameter.type][0]
    if parameter.kind == "int":
        return _C_INTEGERS.get(parameter.type, "bool")
    raise ValueError(f"`{parameter.name}`: a C function takes no {parameter.type}")


def _c_value(parameter: ImageParameter, value: str) -> str:
    if parameter.kind == "pointer":
        return f"{value}->p"
    if parameter.kind == "float":
        return f"{value}->{_C_FLOATS[parameter.type][1]}"
    return f"{_c_type(parameter)}({value}->i)"
