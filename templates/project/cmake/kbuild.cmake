# Makes targets from the decisions in cmake/variants/: one object library per component, one extension.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_SKIP_RPATH ON)
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(KBUILD_GENERATED_DIR "${CMAKE_CURRENT_SOURCE_DIR}")

# Editors read the commands of the last configuration (.clangd names the folder).
if(IS_DIRECTORY "${KBUILD_SOURCE_DIR}/.kbuild")
  file(CREATE_LINK "${CMAKE_CURRENT_BINARY_DIR}/compile_commands.json"
       "${KBUILD_SOURCE_DIR}/.kbuild/compile_commands.json" SYMBOLIC RESULT ignored)
endif()

# Flags for every C++ compiler, the host side of a device compiler included. Each component has its
# own copy as a property, with what its libraries add.
set(KBUILD_HOST_FLAGS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Two versions of a kernel in one process must not share their inline statics.
  list(APPEND KBUILD_HOST_FLAGS -fno-gnu-unique)
  # Keep the names by which headers were found, also behind links: otherwise the maps below miss them.
  list(APPEND KBUILD_HOST_FLAGS -fno-canonical-system-headers)
endif()
if(NOT MSVC)
  # Objects do not depend on where they were built.
  list(APPEND KBUILD_HOST_FLAGS "-ffile-prefix-map=${KBUILD_SOURCE_DIR}=/kernel"
       "-ffile-prefix-map=${KBUILD_GENERATED_DIR}=/generated"
       "-ffile-prefix-map=${CMAKE_CURRENT_BINARY_DIR}=/build")
  set(places ${KBUILD_PYTHON_INCLUDE_DIR})
  list(TRANSFORM places APPEND "=/python")
  list(APPEND KBUILD_PLACES ${places})
  foreach(place IN LISTS KBUILD_PLACES)
    string(REGEX REPLACE "=[^=]*$" "" folder "${place}")
    cmake_path(IS_PREFIX folder "${KBUILD_SOURCE_DIR}" above)
    if(NOT above)
      list(APPEND KBUILD_HOST_FLAGS "-ffile-prefix-map=${place}")
    endif()
  endforeach()
endif()

# CMake starts no launcher for assembler sources.
if(CMAKE_ASM_COMPILER_LAUNCHER)
  list(JOIN CMAKE_ASM_COMPILER_LAUNCHER "\" \"" launcher)
  string(PREPEND CMAKE_ASM_COMPILE_OBJECT "\"${launcher}\" ")
endif()

# kbuild_add_component(<name> [INCLUDE <folder>...] [DEFINITIONS <macro>...] [DEPENDS <library>...]
#                      [HEADERS <file>...])
function(kbuild_add_component component)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "INCLUDE;DEFINITIONS;DEPENDS;HEADERS")
  set(target kbuild-${component})
  add_library(${target} OBJECT)
  set_property(GLOBAL APPEND PROPERTY KBUILD_COMPONENTS ${target})
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON LINKER_LANGUAGE CXX KBUILD_HOST_FLAGS "${KBUILD_HOST_FLAGS}"
    KBUILD_INCLUDE "${arg_INCLUDE}" KBUILD_HEADERS "${arg_HEADERS}")
  foreach(language IN ITEMS CXX OBJCXX CUDA HIP)
    set_target_properties(${target} PROPERTIES
      ${language}_STANDARD ${KBUILD_CXX_STANDARD} ${language}_STANDARD_REQUIRED ON)
  endforeach()
  kbuild_include(${target} ${arg_INCLUDE})
  kbuild_depend(${target} ${arg_DEPENDS})
  target_compile_definitions(${target} PRIVATE ${KBUILD_DEFINITIONS} ${arg_DEFINITIONS})
  get_target_property(flags ${target} KBUILD_HOST_FLAGS)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX,C,ASM,OBJC,OBJCXX>:${flags}>")
  foreach(language IN LISTS KBUILD_DEVICE_LANGUAGES)
    if(COMMAND kbuild_component_${language})
      cmake_language(CALL kbuild_component_${language} ${target})
    endif()
  endforeach()
endfunction()

# Folders of the project; a generated file such as registration.h may lie in the same folder of the
# generated tree.
function(kbuild_include target)
  foreach(folder IN LISTS ARGN)
    target_include_directories(${target} PRIVATE "${KBUILD_SOURCE_DIR}/${folder}")
    if(IS_DIRECTORY "${KBUILD_GENERATED_DIR}/${folder}")
      target_include_directories(${target} PRIVATE "${KBUILD_GENERATED_DIR}/${folder}")
    endif()
  endforeach()
  if(KBUILD_PYTHON_INCLUDE_DIR)
    target_include_directories(${target} SYSTEM PRIVATE "${KBUILD_PYTHON_INCLUDE_DIR}")
  endif()
endfunction()

# Headers of a library: the fact KBUILD_<LIBRARY>_INCLUDE_DIRS.
function(kbuild_depend target)
  foreach(library IN LISTS ARGN)
    string(MAKE_C_IDENTIFIER "${library}" fact)
    string(TOUPPER "KBUILD_${fact}" fact)
    if(NOT ${fact}_INCLUDE_DIRS)
      message(FATAL_ERROR "The headers of ${library} were not found; "
                          "pass -D${fact}_INCLUDE_DIRS=<folders>")
    endif()
    target_include_directories(${target} SYSTEM PRIVATE ${${fact}_INCLUDE_DIRS})
    if(DEFINED ${fact}_CXX11_ABI AND NOT ${fact}_CXX11_ABI)
      target_compile_definitions(${target} PRIVATE _GLIBCXX_USE_CXX11_ABI=0)
    endif()
    if(NOT MSVC)
      list(GET ${fact}_INCLUDE_DIRS 0 first)
      foreach(folder IN LISTS ${fact}_INCLUDE_DIRS)
        cmake_path(IS_PREFIX first "${folder}" below)
        if(folder STREQUAL first OR NOT below)
          set_property(TARGET ${target} APPEND PROPERTY
            KBUILD_HOST_FLAGS "-ffile-prefix-map=${folder}=/${library}")
        endif()
      endforeach()
    endif()
  endforeach()
endfunction()

# kbuild_sources(<component> <language> <file>...)
function(kbuild_sources component language)
  if(COMMAND kbuild_sources_${language})
    cmake_language(CALL kbuild_sources_${language} kbuild-${component} ${ARGN})
  else()
    list(TRANSFORM ARGN PREPEND "${KBUILD_SOURCE_DIR}/")
    target_sources(kbuild-${component} PRIVATE ${ARGN})
    kbuild_seed("" ${ARGN})
  endif()
endfunction()

# kbuild_seed(<prefix of the option> <file>...)
# Sets the seed from which GCC makes names of symbols that have no public name; the default is random.
function(kbuild_seed prefix)
  if(MSVC)
    return()
  endif()
  foreach(source IN LISTS ARGN)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${KBUILD_SOURCE_DIR}" OUTPUT_VARIABLE name)
    set_property(SOURCE "${source}" APPEND PROPERTY
                 COMPILE_OPTIONS "${prefix}-frandom-seed=${name}")
  endforeach()
endfunction()

# kbuild_flags(<component> <language> <flags as a shell writes them>)
function(kbuild_flags component language flags)
  target_compile_options(kbuild-${component} PRIVATE
    "$<$<COMPILE_LANGUAGE:${language}>:SHELL:${flags}>")
endfunction()

# kbuild_install(<file of the project> <path in the variant directory>)
function(kbuild_install source target)
  kbuild_install_file("${KBUILD_SOURCE_DIR}/${source}" "${target}")
endfunction()

function(kbuild_install_file source target)
  cmake_path(GET target PARENT_PATH folder)
  cmake_path(GET target FILENAME name)
  if(NOT folder)
    set(folder .)
  endif()
  install(FILES "${source}" DESTINATION "${folder}" RENAME "${name}" COMPONENT ${KBUILD_OPS_NAME})
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/extension.cmake)
