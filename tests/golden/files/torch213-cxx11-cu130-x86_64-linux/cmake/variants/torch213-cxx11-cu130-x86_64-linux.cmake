# torch213-cxx11-cu130-x86_64-linux: every decision of its plan. Written by kbuild; edits are lost.
set(KBUILD_OPS_NAME _fast_relu_cuda_1a2b3c4)
set(KBUILD_OPS_TEMPLATE ops_torch.py.in)
set(KBUILD_EXTENSION_FILE _fast_relu_cuda_1a2b3c4.abi3.so)
set(KBUILD_LANGUAGES CXX)
set(KBUILD_DEVICE_LANGUAGES CUDA)
set(KBUILD_CXX_STANDARD 20)
set(KBUILD_DEFINITIONS CUDA_KERNEL USE_CUDA=1)
set(KBUILD_LIBRARIES torch torch_cpu c10 torch_cuda c10_cuda CUDA::cudart)
set(KBUILD_LINK_FLAGS "-fopenmp")
set(KBUILD_CUDA_LINK_FLAGS "-gencode=arch=compute_75,code=sm_75")

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
      "12.0+PTX",
      "7.5",
      "8.0",
      "9.0a"
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
    DEFINITIONS Py_LIMITED_API=0x03090000 TORCH_EXTENSION_NAME=_fast_relu_cuda_1a2b3c4
    DEPENDS torch cutlass_3_8
    HEADERS binding/binding.h
  )
  kbuild_sources(binding CXX
    binding/binding.cpp
  )
  kbuild_flags(binding CUDA "--expt-relaxed-constexpr --expt-extended-lambda -DENABLE_FP8")

  kbuild_add_component(relu-0
    INCLUDE cuda
    DEFINITIONS Py_LIMITED_API=0x03090000
    DEPENDS torch cutlass_3_8
  )
  kbuild_sources(relu-0 CUDA
    cuda/relu.cu
  )
  kbuild_sources(relu-0 CXX
    cuda/host.cpp
  )
  kbuild_flags(relu-0 CXX "-O2")
  kbuild_flags(relu-0 CUDA "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_120,code=sm_120 -gencode=arch=compute_120,code=compute_120 --compress-mode=size --use_fast_math -static-global-template-stub=false")

  kbuild_add_component(relu-1
    DEFINITIONS Py_LIMITED_API=0x03090000
    DEPENDS cutlass_3_8
  )
  kbuild_sources(relu-1 CUDA
    cuda/relu.cu
  )
  kbuild_flags(relu-1 CUDA "-gencode=arch=compute_75,code=sm_75 --compress-mode=size -rdc=true -Xcompiler=-fopenmp,-Wall")

  kbuild_install(torch-ext/fast_relu/__init__.py __init__.py)
  kbuild_install(torch-ext/fast_relu/layers/__init__.py layers/__init__.py)
  kbuild_install(torch-ext/fast_relu/tables/tuned.json tables/tuned.json)
endfunction()
