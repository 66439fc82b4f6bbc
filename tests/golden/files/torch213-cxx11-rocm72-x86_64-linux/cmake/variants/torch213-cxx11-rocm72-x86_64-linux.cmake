# torch213-cxx11-rocm72-x86_64-linux: every decision of its plan. Written by kbuild; edits are lost.
set(KBUILD_OPS_NAME _fast_relu_rocm_1a2b3c4)
set(KBUILD_OPS_TEMPLATE ops_torch.py.in)
set(KBUILD_EXTENSION_FILE _fast_relu_rocm_1a2b3c4.abi3.so)
set(KBUILD_LANGUAGES CXX)
set(KBUILD_DEVICE_LANGUAGES HIP)
set(KBUILD_CXX_STANDARD 20)
set(KBUILD_DEFINITIONS ROCM_KERNEL USE_ROCM=1 __HIP_PLATFORM_AMD__=1)
set(KBUILD_LIBRARIES torch torch_cpu c10 torch_hip c10_hip hip::host)
set(KBUILD_LINK_FLAGS "")

set(KBUILD_METADATA [=[
{
  "name": "fast-relu",
  "id": "_fast_relu_rocm_1a2b3c4",
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
    "type": "rocm",
    "archs": [
      "gfx1100",
      "gfx90a"
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
    INCLUDE torch-ext binding
    DEFINITIONS Py_LIMITED_API=0x03090000 TORCH_EXTENSION_NAME=_fast_relu_rocm_1a2b3c4
    DEPENDS torch
    HEADERS binding/binding.h
  )
  kbuild_sources(binding CXX
    binding/binding.cpp
  )
  kbuild_flags(binding HIP "-DCUDA_HAS_FP16=1 -fno-gpu-rdc")

  kbuild_add_component(relu-0
    INCLUDE cuda
    DEFINITIONS Py_LIMITED_API=0x03090000
    DEPENDS torch
    HEADERS cuda/relu.cuh
  )
  kbuild_sources(relu-0 HIP
    cuda/relu.cu
    cuda/extra.hip
  )
  kbuild_flags(relu-0 HIP "--offload-arch=gfx90a --offload-arch=gfx1100 -ffast-math")

  kbuild_install(torch-ext/fast_relu/__init__.py __init__.py)
  kbuild_install(torch-ext/fast_relu/layers/__init__.py layers/__init__.py)
  kbuild_install(torch-ext/fast_relu/tables/tuned.json tables/tuned.json)
endfunction()
