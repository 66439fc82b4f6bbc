"""`load_inline`: kernels from strings, with the arguments of cpp_extension's function."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kbuild.loading.load import has_outdated, load_variant
from kbuild.loading.request import VariantRequest, torch_folder
from kbuild.plugins.inline.request import ARCHS_VARIABLE, InlineRequest
from kbuild.system.cache_folder import cache_folder
from kbuild.system.errors import UsageError
from kbuild.system.record import Record

if TYPE_CHECKING:
    Texts = str | Sequence[str] | None

_FOLDER = "inline"
"""Folder in kbuild's cache folder: a project for each content."""
_UNUSED = 30 * 24 * 3600.0
"""Seconds after which a project that nobody loads is removed."""
_UNIQUE_ID = "inline"
"""The namespace of the ops is in the bindings: device code is compiled once for all contents."""


def load_inline(  # noqa: PLR0917 - in Torch's order
    name: str,
    cpp_sources: Texts,
    cuda_sources: Texts = None,
    sycl_sources: Texts = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,  # noqa: ARG001
    keep_intermediates: bool = True,  # noqa: ARG001
    use_pch: bool = False,  # noqa: ARG001
    no_implicit_headers: bool = False,
    *,
    triton_sources: Texts = None,
    triton_captures: Mapping[str, Mapping[str, Any]] | None = None,
    triton_fallback: bool = True,
    archs: Sequence[str] | None = None,
) -> Any:
    """Build C++, CUDA or SYCL source code for this interpreter and machine, and import it.

    Takes the arguments of `torch.utils.cpp_extension.load_inline`, and Triton sources. Each
    function of C++ becomes a Torch op and a Python function of the module. The C++ may use all of
    Torch (`at::Tensor`) or its stable ABI (`torch::stable::Tensor`), and no pybind11. The same
    arguments give the same build, which is kept in kbuild's cache folder.

    Args:
        name: of the module.
        cpp_sources: C++ source code, one string or several that are compiled together. Torch's
            headers are included before it.
        cuda_sources: CUDA source code, compiled as one file; HIP, where Torch is for ROCm.
        sycl_sources: SYCL source code, compiled as one file.
        functions: the functions of the module: names, or docstring by name. They may take and
            return tensors, numbers, `bool`, strings, dtypes, and `std::optional` and lists of them;
            several results are a `std::tuple`. By default those that a `PYBIND11_MODULE` in
            `cpp_sources` binds, if it only binds functions.
        extra_cflags: flags of the C++ compiler.
        extra_cuda_cflags: flags of nvcc or of the HIP compiler.
        extra_sycl_cflags: flags of the SYCL compiler.
        extra_ldflags: flags of the linker, e.g. `["-lcublas"]`.
        extra_include_paths: folders of headers. An edited header is noticed.
        build_directory: where the project is kept instead of the cache folder.
        verbose: whether messages and progress are printed on stderr.
        with_cuda: whether the variant is for the GPU; by default if there are `cuda_sources`.
        with_sycl: the same for Intel GPUs.
        is_python_module: False to load the library alone; its `TORCH_LIBRARY` is what is used.
        with_pytorch_error_handling: has no effect: errors of C++ are Python exceptions.
        keep_intermediates: has no effect: they are kept.
        use_pch: has no effect: headers that a source does not need are not read.
        no_implicit_headers: whether Torch's headers are not included before the sources.
        triton_sources: Python source code with kernels in Triton and functions that launch them,
            one string or several, each a module. The functions become functions of the module as
            they are, and Triton compiles a kernel when it is launched.
        triton_captures: functions of `triton_sources` that become Torch ops, with their kernels
            compiled ahead of time: by name, the keys of a `[[kernel.<name>.capture]]` table, e.g.
            `{"double": {"arguments": {"x": {"shape": ["N"], "dtypes": ["float32"]}}}}`.
        triton_fallback: whether a function that cannot be captured stays as it is, with a warning
            that says why; otherwise it is an error.
        archs: GPU architectures to compile for, e.g. `["9.0"]`, instead of those of
            `TORCH_CUDA_ARCH_LIST`, and without either of this machine's.

    Returns:
        The module; the path of the library as a string if `is_python_module` is False.

    Raises:
        ConfigError: a function is not there, or has a type that no op can have; with its line.
        BuildError: a source does not compile; the message has the line in the string.
        ToolchainError: a compiler is missing, or Torch is.
        UsageError: sources of two kinds of devices; or `triton_captures` beside `cpp_sources`, or
            on a machine without a GPU and without `archs`.
        CheckError: a function cannot be captured, without `triton_fallback`.
    """
    captures = _captures(triton_captures, triton_sources, (cpp_sources, cuda_sources, sycl_sources))
    cuda, sycl = _texts(cuda_sources), _texts(sycl_sources)
    request = InlineRequest(
        name=name,
        backend=_backend(bool(cuda or captures) if with_cuda is None else with_cuda,
                         bool(sycl) if with_sycl is None else with_sycl),
        cpp=_texts(cpp_sources),
        cuda=cuda,
        sycl=sycl,
        functions=_functions(functions),
        cflags=tuple(extra_cflags or ()),
        cuda_cflags=tuple(extra_cuda_cflags or ()),
        sycl_cflags=tuple(extra_sycl_cflags or ()),
        ldflags=tuple(part for flag in extra_ldflags or () for part in shlex.split(flag)),
        include_paths=tuple(os.path.abspath(path) for path in extra_include_paths or ()),  # noqa: PTH100
        implicit_headers=not no_implicit_headers,
        triton=_texts(triton_sources),
        captures=captures,
        triton_fallback=triton_fallback,
        triton_version=_triton_version() if captures else "",
        archs=tuple(archs or ()),
    )  # fmt: skip
    variant, module = _load(request, build_directory, verbose=verbose)
    if is_python_module:
        return module
    return str(next(path for path in variant.iterdir() if path.suffix in (".so", ".pyd")))


def _load(
    request: InlineRequest, build_directory: str | os.PathLike[str] | None, *, verbose: bool
) -> tuple[Path, ModuleType]:
    is_cached = build_directory is None
    if build_directory is None:
        places = cache_folder(os.environ) / _FOLDER
    else:
        places = Path(os.path.abspath(build_directory))  # noqa: PTH100
    while True:
        variant = VariantRequest(
            places / f"{request.python_name}-{request.digest}",
            request.backend,
            request.archs or _archs(request.backend),
            request.ldflags,
            verbose,
            # Ops of captures have the build's namespace, which has to differ for each content.
            request.digest if request.captures else _UNIQUE_ID,
            request.namespace,
        )
        if not has_outdated(variant):
            break
        # Python cannot load a library twice: the edited one needs another name.
        request = replace(request, generation=request.generation + 1)

    def build(wanted: VariantRequest, cache: Path) -> Record:
        from kbuild.plugins.inline.build import build_inline

        if is_cached:
            _remove_unused(places)
        return build_inline(request, wanted, cache)

    loaded = load_variant(variant, build)
    if is_cached:
        # By this time, `_remove_unused` tells which projects are still loaded.
        os.utime(variant.root)
    return loaded


def _captures(
    captures: Mapping[str, Mapping[str, Any]] | None, triton: Texts, others: Sequence[Texts]
) -> Mapping[str, Mapping[str, Any]]:
    """The functions that are compiled ahead of time, with their descriptions.

    Raises:
        UsageError: there are none in Python, or sources in other languages beside them.
    """
    if not captures:
        return {}
    if not _texts(triton):
        raise UsageError("`triton_captures` needs `triton_sources`")
    if any(text.strip() for sources in others for text in _texts(sources)):
        raise UsageError(
            "`triton_captures` is for `triton_sources` alone",
            hint="call load_inline for the other sources by themselves",
        )
    return dict(captures)


def _triton_version() -> str:
    """The release of Triton that this interpreter has; empty without one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("triton")
    except PackageNotFoundError:
        return ""


def _texts(sources: Texts) -> tuple[str, ...]:
    return (sources,) if isinstance(sources, str) else tuple(sources or ())


def _functions(
    functions: str | Sequence[str] | Mapping[str, str] | None,
) -> Mapping[str, str] | None:
    if functions is None or isinstance(functions, Mapping):
        return functions
    return dict.fromkeys((functions,) if isinstance(functions, str) else functions, "")


def _backend(with_cuda: bool, with_sycl: bool) -> str:
    """The backend, by the sources and by what Torch is built for."""
    if with_cuda and with_sycl:
        raise UsageError(
            "an extension has sources for CUDA or for SYCL, not for both",
            hint="call load_inline for each",
        )
    if with_sycl:
        return "xpu"
    if not with_cuda:
        return "cpu"
    torch = torch_folder()
    version = (torch / "version.py").read_text("utf-8") if torch else ""
    return "rocm" if re.search(r"^hip\b.*= '", version, re.MULTILINE) else "cuda"


def _archs(backend: str) -> tuple[str, ...]:
    """The archs of `TORCH_CUDA_ARCH_LIST`, as cpp_extension reads it; none for this machine's."""
    if backend != "cuda":
        return ()
    from kbuild.backends.capability import read_arch_list  # with models, which take time to import

    return read_arch_list(os.environ.get(ARCHS_VARIABLE, ""))


def _remove_unused(places: Path) -> None:
    """Remove the projects that nobody has loaded for a long time."""
    limit = time.time() - _UNUSED
    for folder in places.glob("*") if places.is_dir() else ():
        with suppress(FileNotFoundError):  # another process removes the same ones
            if folder.stat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)
