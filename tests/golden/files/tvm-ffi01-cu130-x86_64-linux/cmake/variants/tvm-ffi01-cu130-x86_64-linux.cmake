# tvm-ffi01-cu130-x86_64-linux: every decision of its plan. Written by kbuild; edits are lost.
set(KBUILD_OPS_NAME _fast_relu_cuda_1a2b3c4)
set(KBUILD_OPS_TEMPLATE ops_tvm_ffi.py.in)
set(KBUILD_EXTENSION_FILE _fast_relu_cuda_1a2b3c4.so)
set(KBUILD_DISPATCH_KEY CUDA)
set(KBUILD_JAX_PLATFORM gpu)
set(KBUILD_LANGUAGES CXX)
set(KBUILD_DEVICE_LANGUAGES CUDA)
set(KBUILD_CXX_STANDARD 17)
set(KBUILD_DEFINITIONS CUDA_KERNEL)
set(KBUILD_LIBRARIES tvm_ffi CUDA::cudart)
set(KBUILD_EXPORTS "__tvm_ffi_*")
set(KBUILD_LINK_FLAGS "")

set(KBUILD_METADATA [=[
{
  "name": "fast-relu",
  "id": "_fast_relu_cuda_1a2b3c4",
  "version": 2,
  "license": "Apache-2.0",
  "source": "https://example.org/fast-relu",
  "python-depends": [],
  "kernel-depends": [
    {
      "repo-id": "org/other",
      "version": 1
    }
  ],
  "backend": {
    "type": "cuda",
    "archs": [
      "9.0"
    ]
  },
  "provenance": {
    "kernel-builder": {
      "name": "kbuild",
      "version": "(of kbuild)"
    }
  }
}]=])

function(kbuild_variant)
  kbuild_add_component(binding
    INCLUDE tvm-ffi-ext binding
    DEFINITIONS TVM_FFI_DLL_EXPORT_INCLUDE_METADATA=1 TVM_FFI_EXTENSION_NAME=_fast_relu_cuda_1a2b3c4
    DEPENDS tvm-ffi
    HEADERS binding/binding.h
  )
  kbuild_sources(binding CXX
    binding/binding.cpp
  )
  kbuild_flags(binding CUDA "--expt-relaxed-constexpr --expt-extended-lambda -DENABLE_FP8")

  kbuild_add_component(relu-0
    DEFINITIONS TVM_FFI_DLL_EXPORT_INCLUDE_METADATA=1
    DEPENDS tvm-ffi
  )
  kbuild_sources(relu-0 CUDA
    cuda/relu.cu
  )
  kbuild_flags(relu-0 CUDA "-gencode=arch=compute_90,code=sm_90 --compress-mode=size")

  kbuild_install(tvm-ffi-ext/fast_relu/__init__.py __init__.py)
  kbuild_install(tvm-ffi-ext/fast_relu/layers/__init__.py layers/__init__.py)
  kbuild_install(tvm-ffi-ext/fast_relu/tables/tuned.json tables/tuned.json)
endfunction()
