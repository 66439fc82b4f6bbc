# CUDA: nvcc. Architectures are flags of each component, so CMake adds none.
# For builds without kbuild. With kbuild, the compiler launcher chooses a number by free jobs and memory.
set(KBUILD_NVCC_THREADS "" CACHE STRING "Architectures that one nvcc compiles at a time")

macro(kbuild_enable_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH root)
  list(APPEND KBUILD_PLACES "${root}=/cuda")
endmacro()

function(kbuild_component_CUDA target)
  get_target_property(flags ${target} KBUILD_HOST_FLAGS)
  list(TRANSFORM flags REPLACE "^(.* .*)$" "'\\1'") # nvcc splits what it passes on at spaces
  list(TRANSFORM flags PREPEND "-Xcompiler=")
  # nvcc names temporary files after its process; beside the object, it names them after the object.
  list(APPEND flags --objdir-as-tempdir)
  if(KBUILD_NVCC_THREADS)
    list(APPEND flags "--threads=${KBUILD_NVCC_THREADS}")
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${flags}>")
  set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Shared)
  # C++ units call the runtime, too.
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endfunction()

function(kbuild_sources_CUDA target)
  list(TRANSFORM ARGN PREPEND "${KBUILD_SOURCE_DIR}/")
  target_sources(${target} PRIVATE ${ARGN})
  # nvcc 13 passes the option on to the host compiler.
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    kbuild_seed("-" ${ARGN})
  else()
    kbuild_seed("-Xcompiler=" ${ARGN})
  endif()
  foreach(source IN LISTS ARGN)
    kbuild_name_cuda_unit("${source}")
  endforeach()
endfunction()

# Code of `-rdc=true` is linked for the devices first; the host's linker gets the result. What kernels
# call of CUDA's device runtime, launches for instance, has a part for the host as well.
function(kbuild_extension_CUDA target)
  if(KBUILD_CUDA_LINK_FLAGS)
    set_target_properties(${target} PROPERTIES CUDA_RESOLVE_DEVICE_SYMBOLS ON)
    kbuild_link_options(${target} DEVICE_LINK "SHELL:${KBUILD_CUDA_LINK_FLAGS}")
    find_library(runtime NAMES cudadevrt NO_CACHE HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(runtime)
      target_link_libraries(${target} PRIVATE "${runtime}")
    endif()
  endif()
endfunction()

# Names of kernels in an unnamed namespace contain a digest of the unit's absolute path. This option
# gives nvcc's front end another path. Commas separate options, so they are replaced.
function(kbuild_name_cuda_unit unit)
  cmake_path(RELATIVE_PATH unit BASE_DIRECTORY "${KBUILD_SOURCE_DIR}" OUTPUT_VARIABLE name)
  string(REPLACE "," "_" name "${name}")
  set_property(SOURCE "${unit}" APPEND PROPERTY
               COMPILE_OPTIONS "-Xcudafe=--orig_src_path_name,/kernel/${name}")
endfunction()
