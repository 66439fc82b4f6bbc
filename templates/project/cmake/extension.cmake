# The extension: all components' objects, linked against exactly the plan's libraries.

function(kbuild_add_extension)
  foreach(language IN LISTS KBUILD_DEVICE_LANGUAGES)
    if(COMMAND kbuild_finish_${language})
      cmake_language(CALL kbuild_finish_${language})
    endif()
  endforeach()
  get_property(components GLOBAL PROPERTY KBUILD_COMPONENTS)
  list(TRANSFORM components REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  get_property(linked GLOBAL PROPERTY KBUILD_LINKED_OBJECTS)
  add_library(${KBUILD_OPS_NAME} MODULE ${objects} ${linked})
  set_target_properties(${KBUILD_OPS_NAME} PROPERTIES
    PREFIX "" SUFFIX "" OUTPUT_NAME "${KBUILD_EXTENSION_FILE}" LINKER_LANGUAGE CXX
    CUDA_RUNTIME_LIBRARY None)
  foreach(language IN LISTS KBUILD_DEVICE_LANGUAGES)
    if(COMMAND kbuild_extension_${language})
      cmake_language(CALL kbuild_extension_${language} ${KBUILD_OPS_NAME})
    endif()
  endforeach()
  kbuild_link(${KBUILD_OPS_NAME})
  kbuild_install_extension()
endfunction()

# Base names are files in the frameworks' library folders; targets and flags are taken as they are.
function(kbuild_link target)
  set(frameworks "")
  set(others "")
  foreach(library IN LISTS KBUILD_LIBRARIES)
    if(library MATCHES "::|^-")
      list(APPEND others "${library}")
    else()
      find_library(file NAMES ${library} REQUIRED NO_CACHE NO_DEFAULT_PATH
                   PATHS "${KBUILD_TORCH_LIBRARY_DIR}" "${KBUILD_TVM_FFI_LIBRARY_DIR}")
      list(APPEND frameworks "${file}")
      unset(file)
    endif()
  endforeach()
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    # Operators register when a library loads: keep libraries although no symbol needs them.
    list(PREPEND frameworks "-Wl,--push-state,--no-as-needed")
    list(APPEND frameworks "-Wl,--pop-state")
    # A digest of the content, whatever the compiler's default is.
    kbuild_link_options(${target} HOST_LINK "LINKER:--build-id=sha1")
    kbuild_hide(${target})
  elseif(APPLE)
    # Python's symbols come from the interpreter.
    target_link_options(${target} PRIVATE "LINKER:-undefined,dynamic_lookup")
    list(TRANSFORM KBUILD_EXPORTS PREPEND "LINKER:-exported_symbol,_" OUTPUT_VARIABLE exports)
    target_link_options(${target} PRIVATE ${exports})
  elseif(WIN32 AND KBUILD_PYTHON_INCLUDE_DIR)
    target_link_directories(${target} PRIVATE "${KBUILD_PYTHON_INCLUDE_DIR}/../libs")
  endif()
  get_property(linked GLOBAL PROPERTY KBUILD_LINKED_LIBRARIES)
  target_link_libraries(${target} PRIVATE ${linked} ${frameworks} ${others})
  kbuild_link_flags(${target})
endfunction()

# kbuild_link_options(<target> <HOST_LINK or DEVICE_LINK> <options as one argument>)
function(kbuild_link_options target where options)
  string(REPLACE ">" "$<ANGLE-R>" options "${options}")
  string(REPLACE "," "$<COMMA>" options "${options}")
  target_link_options(${target} PRIVATE "$<${where}:${options}>")
endfunction()

# Hides C++ symbols: templates of Torch's headers compile to the same symbols in every kernel, which
# would all bind to the first one. C symbols, PyInit_ among them, keep the visibility of their source,
# unless the variant lists its exports. Symbols of linked objects and of linked device code are hidden.
function(kbuild_hide target)
  set(exports "${CMAKE_CURRENT_BINARY_DIR}/exports.map")
  set(offered "*; local: _Z*; *kbuild_aot_*; __cudaRegisterLinkedBinary_*; __fatbinwrap_*")
  string(APPEND offered "; hostRef*ArrayExternalLinkage; hostRef*ArrayInternalLinkage")
  if(KBUILD_EXPORTS)
    list(JOIN KBUILD_EXPORTS "; " offered)
    string(APPEND offered "; local: *")
  endif()
  file(CONFIGURE OUTPUT "${exports}" CONTENT "{ global: ${offered}; };\n" NEWLINE_STYLE LF)
  kbuild_link_options(${target} HOST_LINK "LINKER:--version-script=${exports}")
endfunction()

function(kbuild_link_flags target)
  set(flags "${KBUILD_LINK_FLAGS}")
  foreach(language IN LISTS KBUILD_DEVICE_LANGUAGES)
    if(COMMAND kbuild_link_flags_${language})
      cmake_language(CALL kbuild_link_flags_${language} flags)
    endif()
  endforeach()
  if(flags)
    kbuild_link_options(${target} HOST_LINK "SHELL:${flags}")
  endif()
endfunction()

# The component is the variant directory; `local_install` puts it where the client looks for it.
function(kbuild_install_extension)
  install(TARGETS ${KBUILD_OPS_NAME} COMPONENT ${KBUILD_OPS_NAME} DESTINATION .
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                WORLD_READ WORLD_EXECUTE)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/packaged")
  configure_file("${KBUILD_GENERATED_DIR}/cmake/${KBUILD_OPS_TEMPLATE}" "${folder}/_ops.py"
                 @ONLY NEWLINE_STYLE LF)
  kbuild_install_file("${folder}/_ops.py" _ops.py)
  if(NOT KBUILD_WRITES_METADATA) # kbuild itself knows more after the build
    file(CONFIGURE OUTPUT "${folder}/metadata.json" CONTENT "@KBUILD_METADATA@"
         @ONLY NEWLINE_STYLE LF)
    kbuild_install_file("${folder}/metadata.json" metadata.json)
  endif()
  add_custom_target(local_install
    COMMAND "${CMAKE_COMMAND}" --install "${CMAKE_CURRENT_BINARY_DIR}" --component ${KBUILD_OPS_NAME}
            --prefix "${KBUILD_SOURCE_DIR}/build/${KBUILD_VARIANT}"
    DEPENDS ${KBUILD_OPS_NAME}
    VERBATIM)
endfunction()
