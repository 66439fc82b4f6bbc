# Written by kbuild: the HIP runtime of this folder. Only its symbols are here; the library itself
# comes with the ROCm of whoever loads the result.
get_filename_component(_kbuild_rocm "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET hip::amdhip64)
  add_library(hip::amdhip64 SHARED IMPORTED)
  set_target_properties(hip::amdhip64 PROPERTIES
    IMPORTED_LOCATION "${_kbuild_rocm}/lib/libamdhip64.so"
    IMPORTED_SONAME "@SONAME@"
    INTERFACE_INCLUDE_DIRECTORIES "${_kbuild_rocm}/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_kbuild_rocm}/include")
  add_library(hip::host INTERFACE IMPORTED)
  set_target_properties(hip::host PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "__HIP_PLATFORM_AMD__=1"
    INTERFACE_LINK_LIBRARIES hip::amdhip64)
endif()
unset(_kbuild_rocm)
