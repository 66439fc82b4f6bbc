# CUDA: nvcc. Architectures are flags of each component, so CMake adds none.
# For builds by hand: under kbuild, the launcher decides from the tokens and the memory that there are.
set(KBUILD_NVCC_THREADS "" CACHE STRING "Architectures that one nvcc compiles at a time")

macro(kbuild_enable_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endmacro()

function(kbuild_component_CUDA target)
  get_target_property(flags ${target} KBUILD_HOST_FLAGS)
  list(TRANSFORM flags PREPEND "-Xcompiler=")
  if(KBUILD_NVCC_THREADS)
    list(APPEND flags "--threads=${KBUILD_NVCC_THREADS}")
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${flags}>")
  set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Shared)
  # C++ units call the runtime too.
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endfunction()

# nvcc names local symbols after its process: without them the same sources give the same library.
function(kbuild_link_flags_CUDA variable)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(${variable} "${${variable}} -Wl,--discard-all" PARENT_SCOPE)
  endif()
endfunction()
