# HIP: clang. Torch's hipify translates CUDA sources in the build tree: those of a component, and what
# they include from the project.

macro(kbuild_enable_HIP)
  set(CMAKE_HIP_ARCHITECTURES OFF)
  enable_language(HIP)
  find_package(hip CONFIG REQUIRED HINTS "$ENV{ROCM_PATH}" /opt/rocm)
endmacro()

# C++ units call the runtime, too. clang makes no unique symbols, and rejects GCC's flags.
function(kbuild_component_HIP target)
  get_target_property(flags ${target} KBUILD_HOST_FLAGS)
  list(REMOVE_ITEM flags -fno-gnu-unique -fno-canonical-system-headers)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:HIP>:${flags}>")
  target_include_directories(${target} SYSTEM PRIVATE
    $<TARGET_PROPERTY:hip::host,INTERFACE_INCLUDE_DIRECTORIES>)
endfunction()

function(kbuild_sources_HIP target)
  set(hip ${ARGN})
  list(FILTER hip EXCLUDE REGEX "\\.cu$")
  set(cuda ${ARGN})
  list(FILTER cuda INCLUDE REGEX "\\.cu$")
  list(TRANSFORM hip PREPEND "${KBUILD_SOURCE_DIR}/")
  if(cuda)
    kbuild_hipify(units ${target} ${cuda})
    list(APPEND hip ${units})
  endif()
  target_sources(${target} PRIVATE ${hip})
  foreach(unit IN LISTS hip)
    kbuild_name_unit("${unit}")
  endforeach()
endfunction()

# clang names each unit after a digest of its absolute path; these names do not depend on the folder.
function(kbuild_name_unit unit)
  set(name "${unit}")
  foreach(root IN ITEMS "${CMAKE_CURRENT_BINARY_DIR}" "${KBUILD_SOURCE_DIR}")
    string(REPLACE "${root}/" "" name "${name}")
  endforeach()
  string(MD5 name "${name}")
  set_source_files_properties("${unit}" PROPERTIES
    COMPILE_OPTIONS "-cuid=$<MAKE_C_IDENTIFIER:$<TARGET_PROPERTY:NAME>>_${name}")
endfunction()

# Each unit includes its translation, and changes when a file that was translated for it changes.
function(kbuild_hipify result target)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/hipify/${target}")
  list(TRANSFORM ARGN REPLACE "(.+)" "${folder}/units/\\1.hip" OUTPUT_VARIABLE units)
  set(sources ${ARGN})
  list(TRANSFORM sources PREPEND "${KBUILD_SOURCE_DIR}/")
  get_target_property(include ${target} KBUILD_INCLUDE)
  list(TRANSFORM include PREPEND "--include=")
  if(NOT KBUILD_HIPIFY_DIR)
    set(KBUILD_HIPIFY_DIR "${KBUILD_TORCH_LIBRARY_DIR}/../utils/hipify")
  endif()
  if(NOT EXISTS "${KBUILD_HIPIFY_DIR}/hipify_python.py")
    message(FATAL_ERROR "CUDA sources are translated by Torch's hipify, which is not in "
                        "${KBUILD_HIPIFY_DIR}; pass -DKBUILD_HIPIFY_DIR=<folder>")
  endif()
  set(script "${KBUILD_GENERATED_DIR}/cmake/languages/HIP.py")
  add_custom_command(
    OUTPUT ${units}
    COMMAND "${KBUILD_PYTHON}" "${script}" "--hipify=${KBUILD_HIPIFY_DIR}"
            "--project=${KBUILD_SOURCE_DIR}" "--output=${folder}" ${include} ${ARGN}
    DEPENDS ${sources} "${script}"
    DEPFILE "${folder}/hipify.d"
    COMMENT "Translating CUDA to HIP for ${target}"
    VERBATIM)
  # Translations keep `#include "x.h"` of a neighbour that needed no translation.
  set(folders "")
  foreach(source IN LISTS ARGN)
    cmake_path(GET source PARENT_PATH parent)
    list(APPEND folders "${folder}/tree/${parent}")
  endforeach()
  get_target_property(include ${target} KBUILD_INCLUDE)
  list(TRANSFORM include PREPEND "${folder}/tree/")
  list(APPEND include ${folders})
  list(REMOVE_DUPLICATES include)
  target_include_directories(${target} BEFORE PRIVATE "$<$<COMPILE_LANGUAGE:HIP>:${include}>")
  set(${result} "${units}" PARENT_SCOPE)
endfunction()
