"""TVM-FFI extensions: one binary for Torch, JAX, NumPy and whatever else speaks DLPack."""

from __future__ import annotations

from kbuild.backends.frameworks.base import CXX17, FRAMEWORKS, Framework
from kbuild.system.version import Version

# Loaded by TVM-FFI, not by Python: plain shared libraries.
MODULE_SUFFIXES = {"linux": ".so", "darwin": ".dylib", "windows": ".dll"}


@FRAMEWORKS.add
class TvmFfi(Framework):
    """Bindings through `TVM_FFI_DLL_EXPORT_TYPED_FUNC`."""

    name = "tvm-ffi"
    table = "tvm-ffi"
    package_root = "tvm-ffi-ext"
    ops_template = "ops_tvm_ffi.py.j2"
    runtime_module = "tvm_ffi"
    runtime_package = "apache-tvm-ffi"
    name_macro = "TVM_FFI_EXTENSION_NAME"
    names_devices = True
    exports = ("__tvm_ffi_*",)
    backend_macros = False
    module_suffixes = MODULE_SUFFIXES
    header_folders = ("tvm", "dlpack")
    build_requires = ("apache-tvm-ffi",)

    def definitions(self, ops_name: str, floor: Version | None) -> tuple[str, ...]:
        """The macros; each function then comes with a description of its parameters for tools."""
        return ("TVM_FFI_DLL_EXPORT_INCLUDE_METADATA=1",)

    def cxx_standard(self, release: Version | None) -> int:
        """C++17, the floor of the TVM-FFI headers."""
        return CXX17

    def libraries(self) -> tuple[str, ...]:
        """The TVM-FFI runtime."""
        return ("tvm_ffi",)
