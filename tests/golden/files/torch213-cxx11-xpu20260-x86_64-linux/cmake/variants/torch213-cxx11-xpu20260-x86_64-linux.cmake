# torch213-cxx11-xpu20260-x86_64-linux: every decision of its plan. Written by kbuild; edits are lost.
set(KBUILD_OPS_NAME _fast_relu_xpu_1a2b3c4)
set(KBUILD_OPS_TEMPLATE ops_torch.py.in)
set(KBUILD_EXTENSION_FILE _fast_relu_xpu_1a2b3c4.abi3.so)
set(KBUILD_LANGUAGES CXX)
set(KBUILD_DEVICE_LANGUAGES SYCL)
set(KBUILD_CXX_STANDARD 20)
set(KBUILD_DEFINITIONS XPU_KERNEL USE_XPU)
set(KBUILD_LIBRARIES torch torch_cpu c10 torch_xpu c10_xpu)
set(KBUILD_LINK_FLAGS "-Wl,-z,noexecstack -fsycl --offload-compress -fsycl-targets=spir64_gen,spir64 -Xsycl-target-backend=spir64_gen '-device pvc,bmg-g21,cri -options '\"'\"'-cl-intel-enable-auto-large-GRF-mode -cl-poison-unsupported-fp64-kernels -cl-intel-greater-than-4GB-buffer-required'\"'\"'' -Xspirv-translator=spir64_gen -spirv-ext=+SPV_INTEL_split_barrier,+SPV_INTEL_2d_block_io,+SPV_INTEL_subgroup_matrix_multiply_accumulate -Xspirv-translator=spir64 -spirv-ext=+SPV_INTEL_split_barrier,+SPV_INTEL_2d_block_io,+SPV_INTEL_subgroup_matrix_multiply_accumulate")

set(KBUILD_METADATA [=[
{
  "name": "fast-relu",
  "id": "_fast_relu_xpu_1a2b3c4",
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
    "type": "xpu"
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
    DEFINITIONS Py_LIMITED_API=0x03090000 TORCH_EXTENSION_NAME=_fast_relu_xpu_1a2b3c4
    DEPENDS torch sycl_tla
    HEADERS binding/binding.h
  )
  kbuild_sources(binding CXX
    binding/binding.cpp
  )

  kbuild_add_component(relu-0
    DEFINITIONS Py_LIMITED_API=0x03090000
    DEPENDS torch sycl_tla
  )
  kbuild_sources(relu-0 CXX
    xpu/relu.cpp
  )
  kbuild_flags(relu-0 CXX "-fPIC -fsycl -fhonor-nans -fhonor-infinities -fno-associative-math -fno-approx-func -foffload-fp32-prec-div -foffload-fp32-prec-sqrt -fno-sycl-instrument-device-code --offload-compress -fsycl-targets=spir64_gen,spir64 -fsycl-unnamed-lambda")

  kbuild_add_component(relu-1
    DEFINITIONS Py_LIMITED_API=0x03090000
    DEPENDS torch sycl_tla
  )
  kbuild_sources(relu-1 CXX
    xpu/gemm.cpp
  )
  kbuild_flags(relu-1 CXX "-fPIC -fsycl -fhonor-nans -fhonor-infinities -fno-associative-math -fno-approx-func -foffload-fp32-prec-div -foffload-fp32-prec-sqrt -fno-sycl-instrument-device-code --offload-compress -fsycl-targets=spir64_gen,spir64 -DCUTLASS_ENABLE_SYCL=1 -DSYCL_INTEL_TARGET=1")

  kbuild_install(torch-ext/fast_relu/__init__.py __init__.py)
  kbuild_install(torch-ext/fast_relu/layers/__init__.py layers/__init__.py)
  kbuild_install(torch-ext/fast_relu/tables/tuned.json tables/tuned.json)
endfunction()
