# METAL: shaders become one library, embedded in a header that hosts include.
set(KBUILD_METAL_FLAGS -std=metal4.0 -O2)

macro(kbuild_enable_METAL)
  if(NOT KBUILD_METAL_BIN_DIR)
    execute_process(COMMAND xcodebuild -showComponent MetalToolchain
                    OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCH "Toolchain Search Path: ([^\n]+)" output "${output}")
    set(KBUILD_METAL_BIN_DIR "${CMAKE_MATCH_1}/Metal.xctoolchain/usr/bin")
  endif()
endmacro()

function(kbuild_component_METAL target)
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/metal")
endfunction()

function(kbuild_sources_METAL target)
  get_target_property(include ${target} KBUILD_INCLUDE)
  list(TRANSFORM include PREPEND "-I${KBUILD_SOURCE_DIR}/")
  get_target_property(headers ${target} KBUILD_HEADERS)
  list(TRANSFORM headers PREPEND "${KBUILD_SOURCE_DIR}/")
  foreach(source IN LISTS ARGN)
    set(air "${CMAKE_CURRENT_BINARY_DIR}/metal/${source}.air")
    cmake_path(GET air PARENT_PATH folder)
    file(MAKE_DIRECTORY "${folder}")
    add_custom_command(
      OUTPUT "${air}"
      COMMAND "${KBUILD_METAL_BIN_DIR}/metal" ${KBUILD_METAL_FLAGS} ${include}
              -c "${KBUILD_SOURCE_DIR}/${source}" -o "${air}"
      DEPENDS "${KBUILD_SOURCE_DIR}/${source}" ${headers}
      COMMENT "Compiling ${source}"
      VERBATIM)
    set_property(GLOBAL APPEND PROPERTY KBUILD_METAL_OBJECTS "${air}")
    # Seen by IDEs, compiled above.
    set_source_files_properties("${KBUILD_SOURCE_DIR}/${source}" PROPERTIES HEADER_FILE_ONLY ON)
    target_sources(${target} PRIVATE "${KBUILD_SOURCE_DIR}/${source}")
  endforeach()
endfunction()

function(kbuild_finish_METAL)
  get_property(objects GLOBAL PROPERTY KBUILD_METAL_OBJECTS)
  set(library "${CMAKE_CURRENT_BINARY_DIR}/metal/embedded.metallib")
  set(header "${CMAKE_CURRENT_BINARY_DIR}/metal/embedded_metallib.h")
  set(script "${KBUILD_GENERATED_DIR}/cmake/languages/METAL.py")
  if(NOT objects)
    return()
  endif()
  add_custom_command(
    OUTPUT "${library}"
    COMMAND "${KBUILD_METAL_BIN_DIR}/metallib" ${objects} -o "${library}"
    DEPENDS ${objects}
    VERBATIM)
  add_custom_command(
    OUTPUT "${header}"
    COMMAND "${KBUILD_PYTHON}" "${script}" "${library}" "${header}"
    DEPENDS "${library}" "${script}"
    VERBATIM)
  add_custom_target(kbuild-metallib DEPENDS "${header}")
  get_property(components GLOBAL PROPERTY KBUILD_COMPONENTS)
  foreach(component IN LISTS components)
    add_dependencies(${component} kbuild-metallib)
  endforeach()
endfunction()
