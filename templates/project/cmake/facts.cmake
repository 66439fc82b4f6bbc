# Finds out what this machine has, and which variant fits it. Runs before project(), because a variant
# may choose the compiler.

# Unless the facts are given, inspects the packages of one interpreter, without importing them.
if(NOT DEFINED KBUILD_TORCH_INCLUDE_DIRS AND NOT DEFINED KBUILD_TVM_FFI_INCLUDE_DIRS)
  foreach(interpreter IN ITEMS "${Python_EXECUTABLE}" "${Python3_EXECUTABLE}")
    if(interpreter AND NOT KBUILD_PYTHON)
      set(KBUILD_PYTHON "${interpreter}" CACHE FILEPATH "Interpreter whose packages are built against")
    endif()
  endforeach()
  find_program(KBUILD_PYTHON NAMES python3 python REQUIRED)
  execute_process(
    COMMAND "${KBUILD_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/probe.py" --format cmake
    OUTPUT_FILE "${CMAKE_BINARY_DIR}/kbuild-facts.cmake"
    COMMAND_ERROR_IS_FATAL ANY)
  include("${CMAKE_BINARY_DIR}/kbuild-facts.cmake")
endif()

# Torch 2.13.0+cu130: release 2.13, compute cu130.
set(KBUILD_TORCH_RELEASE "")
set(KBUILD_TORCH_COMPUTE "")
if(KBUILD_TORCH_VERSION MATCHES "^([0-9]+\\.[0-9]+)[^+]*\\+?(.*)$")
  set(KBUILD_TORCH_RELEASE "${CMAKE_MATCH_1}")
  string(REPLACE "." "" KBUILD_TORCH_COMPUTE "${CMAKE_MATCH_2}")
endif()

function(kbuild_host_system result)
  cmake_host_system_information(RESULT machine QUERY OS_PLATFORM)
  string(TOLOWER "${machine}-${CMAKE_HOST_SYSTEM_NAME}" system)
  string(REGEX REPLACE "^amd64-" "x86_64-" system "${system}")
  string(REGEX REPLACE "^arm64-" "aarch64-" system "${system}")
  set(${result} "${system}" PARENT_SCOPE)
endfunction()

# kbuild_offer(<variant> <system> <compute> [TORCH <release>] [TORCH_FLOOR <release>])
# Lists a variant; the first that fits the machine becomes the default.
function(kbuild_offer variant system compute)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "TORCH;TORCH_FLOOR" "")
  set_property(GLOBAL APPEND PROPERTY KBUILD_OFFERED ${variant})
  get_property(chosen GLOBAL PROPERTY KBUILD_FITTING)
  kbuild_host_system(host)
  string(FIND "${compute}" "${KBUILD_TORCH_COMPUTE}" place)
  if(chosen
     OR NOT system STREQUAL host
     OR NOT place EQUAL 0
     OR (arg_TORCH AND NOT KBUILD_TORCH_RELEASE VERSION_EQUAL arg_TORCH)
     OR (arg_TORCH_FLOOR AND KBUILD_TORCH_RELEASE VERSION_LESS arg_TORCH_FLOOR))
    return()
  endif()
  set_property(GLOBAL PROPERTY KBUILD_FITTING ${variant})
endfunction()

# Sets KBUILD_VARIANT, unless it is set.
function(kbuild_choose_variant)
  get_property(offered GLOBAL PROPERTY KBUILD_OFFERED)
  get_property(fitting GLOBAL PROPERTY KBUILD_FITTING)
  list(JOIN offered "\n  " listed)
  if(KBUILD_VARIANT AND NOT KBUILD_VARIANT IN_LIST offered)
    message(FATAL_ERROR "KBUILD_VARIANT=${KBUILD_VARIANT} is not one of:\n  ${listed}")
  elseif(NOT KBUILD_VARIANT AND NOT fitting)
    message(FATAL_ERROR "No variant fits this machine (Torch ${KBUILD_TORCH_VERSION}). "
                        "Pass -DKBUILD_VARIANT=, one of:\n  ${listed}")
  endif()
  set(KBUILD_VARIANT "${fitting}" CACHE STRING "The variant to build")
  message(STATUS "Variant ${KBUILD_VARIANT}")
endfunction()
