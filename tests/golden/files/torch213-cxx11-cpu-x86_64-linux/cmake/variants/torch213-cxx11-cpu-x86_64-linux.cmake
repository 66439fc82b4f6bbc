# torch213-cxx11-cpu-x86_64-linux: every decision of its plan. Written by kbuild; edits are lost.
set(KBUILD_OPS_NAME _fast_relu_cpu_1a2b3c4)
set(KBUILD_OPS_TEMPLATE ops_torch.py.in)
set(KBUILD_EXTENSION_FILE _fast_relu_cpu_1a2b3c4.abi3.so)
set(KBUILD_LANGUAGES CXX)
set(KBUILD_DEVICE_LANGUAGES)
set(KBUILD_CXX_STANDARD 20)
set(KBUILD_DEFINITIONS CPU_KERNEL)
set(KBUILD_LIBRARIES torch torch_cpu c10)
set(KBUILD_LINK_FLAGS "-fopenmp -fsanitize=bounds,shift")

set(KBUILD_METADATA [=[
{
  "name": "fast-relu",
  "id": "_fast_relu_cpu_1a2b3c4",
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
    "type": "cpu"
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
    DEFINITIONS Py_LIMITED_API=0x03090000 TORCH_EXTENSION_NAME=_fast_relu_cpu_1a2b3c4
    DEPENDS torch
    HEADERS binding/binding.h cpu/tables.h cpu/tables.inc
  )
  kbuild_sources(binding CXX
    binding/binding.cpp
  )

  kbuild_add_component(relu-0
    DEFINITIONS Py_LIMITED_API=0x03090000
    DEPENDS torch
    HEADERS cpu/relu.h cpu/tables.h cpu/tables.inc
  )
  kbuild_sources(relu-0 CXX
    cpu/relu.cpp
  )
  kbuild_flags(relu-0 CXX "-ffast-math '-DNAME=\"a $<ANGLE-R> b\"'")

  kbuild_add_component(relu-1
    DEFINITIONS Py_LIMITED_API=0x03090000
    DEPENDS torch
    HEADERS cpu/tables.h cpu/tables.inc
  )
  kbuild_sources(relu-1 CXX
    cpu/sum.cpp
  )
  kbuild_flags(relu-1 CXX "-fopenmp -fsanitize=bounds,shift")

  kbuild_install(torch-ext/fast_relu/__init__.py __init__.py)
  kbuild_install(torch-ext/fast_relu/layers/__init__.py layers/__init__.py)
  kbuild_install(torch-ext/fast_relu/tables/tuned.json tables/tuned.json)
endfunction()
