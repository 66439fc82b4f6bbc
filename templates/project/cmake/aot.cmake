# Kernels in Python DSLs: generated launchers, each with a file of device images or a folder of
# objects beside it.

# kbuild_aot(<component>)
# The launcher includes its images with `.incbin`. It contains their digest, so that its text changes
# with them.
function(kbuild_aot component)
  set(folder "${KBUILD_GENERATED_DIR}/aot")
  set(source "${folder}/${component}.cpp")
  target_sources(kbuild-${component} PRIVATE "${source}")
  set_target_properties(kbuild-${component} PROPERTIES CXX_STANDARD 20)
  target_compile_options(kbuild-${component} PRIVATE
    -O2 -fvisibility=hidden -fvisibility-inlines-hidden "-Wa,-I${folder}")
  if(EXISTS "${folder}/${component}.bin")
    set_property(SOURCE "${source}" APPEND PROPERTY OBJECT_DEPENDS "${folder}/${component}.bin")
  endif()
  kbuild_aot_objects(${component})
  set_property(SOURCE "${source}" APPEND PROPERTY
               COMPILE_OPTIONS "-frandom-seed=aot/${component}.cpp")
endfunction()

# Joins the objects that a launcher calls, and what they need. `<component>.cmake` sets `objects`; `aliases`,
# second names of functions that the launcher replaces; and `launches`, options of objcopy that make CuTe DSL's
# runtime launch through the launcher. `<component>.libraries.cmake` sets `archives`, `cudart` and `amdhip64`.
# The result is one object. Each kernel has its own copy of its archives, so kernels of two releases do not
# share one.
function(kbuild_aot_objects component)
  set(folder "${KBUILD_GENERATED_DIR}/aot")
  if(NOT EXISTS "${folder}/${component}.cmake")
    return()
  endif()
  set(aliases "")
  set(launches "")
  include("${folder}/${component}.cmake")
  include("${folder}/${component}.libraries.cmake" OPTIONAL)
  list(TRANSFORM objects PREPEND "${folder}/")
  list(TRANSFORM aliases PREPEND "${folder}/")
  set(joined "${CMAKE_CURRENT_BINARY_DIR}/aot-${component}.o")
  add_custom_command(OUTPUT "${joined}"
    COMMAND "${CMAKE_LINKER}" -r --force-group-allocation -o "${joined}.all"
            ${objects} ${archives} ${aliases}
    COMMAND "${CMAKE_OBJCOPY}" --wildcard "--keep-global-symbol=*kbuild_aot_*"
            "--weaken-symbol=*kbuild_aot_*_cuda_init" "--weaken-symbol=*kbuild_aot_*_cuda_load_to_device"
            ${launches} "${joined}.all" "${joined}"
    DEPENDS ${objects} ${archives} ${aliases} COMMENT "Joining aot/${component}" VERBATIM)
  add_custom_target(kbuild-aot-${component} DEPENDS "${joined}")
  set_property(GLOBAL APPEND PROPERTY KBUILD_LINKED_OBJECTS "${joined}")
  if(cudart)
    kbuild_runtime(cudart ${cudart} cudaGetErrorString CUDA::cudart)
  endif()
  if(amdhip64)
    kbuild_runtime(amdhip64 ${amdhip64} hipGetErrorString hip::amdhip64)
  endif()
endfunction()

# kbuild_runtime(<name> <major release> <function> <target>)
# Links the runtime of CUDA or HIP that the framework loads. Without a toolkit, a library with its name and
# one of its functions adds the dependency.
function(kbuild_runtime name major function target)
  if(TARGET ${target})
    set_property(GLOBAL APPEND PROPERTY KBUILD_LINKED_LIBRARIES ${target})
  elseif(NOT TARGET kbuild-${name})
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp")
    file(CONFIGURE OUTPUT "${source}" NEWLINE_STYLE LF
         CONTENT "extern \"C\" void ${function}() {}\n")
    add_library(kbuild-${name} SHARED "${source}")
    set_target_properties(kbuild-${name} PROPERTIES OUTPUT_NAME ${name} SOVERSION ${major}
      LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/${name}")
    set_property(GLOBAL APPEND PROPERTY KBUILD_LINKED_LIBRARIES kbuild-${name})
  endif()
endfunction()
