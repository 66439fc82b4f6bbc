# SYCL: DPC++ compiles it, and is therefore the C++ compiler.
if(NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  find_program(KBUILD_DPCPP NAMES icpx REQUIRED)
  set(CMAKE_CXX_COMPILER "${KBUILD_DPCPP}")
endif()

macro(kbuild_enable_SYCL)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "IntelLLVM")
    message(FATAL_ERROR "SYCL needs icpx; the C++ compiler is ${CMAKE_CXX_COMPILER}")
  endif()
endmacro()

# A list of SPIR-V extensions replaces the compiler's own list, so that list comes first. Without it
# the device code would be wrong, so a failure is fatal.
function(kbuild_link_flags_SYCL variable)
  if(NOT "${${variable}}" MATCHES "-spirv-ext=")
    return()
  endif()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/spirv-extensions.cpp")
  file(WRITE "${source}" "int main() { return 0; }\n")
  execute_process(
    COMMAND "${CMAKE_CXX_COMPILER}" -fsycl -fsycl-targets=spir64_gen "-###" "${source}"
    OUTPUT_VARIABLE output ERROR_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  if(NOT output MATCHES "-spirv-ext=(-all,)?([^\" ]+)")
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} does not tell its SPIR-V extensions")
  endif()
  string(REPLACE "-spirv-ext=" "-spirv-ext=-all,${CMAKE_MATCH_2}," changed "${${variable}}")
  set(${variable} "${changed}" PARENT_SCOPE)
endfunction()
