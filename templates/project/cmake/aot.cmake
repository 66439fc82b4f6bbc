# Kernels in Python DSLs: generated launchers, each with a file of device images beside it.

# kbuild_aot(<component>)
# The launcher takes its images in with `.incbin`. It names their digest: other images are other text.
function(kbuild_aot component)
  set(folder "${KBUILD_GENERATED_DIR}/aot")
  set(source "${folder}/${component}.cpp")
  target_sources(kbuild-${component} PRIVATE "${source}")
  set_target_properties(kbuild-${component} PROPERTIES CXX_STANDARD 20)
  target_compile_options(kbuild-${component} PRIVATE
    -O2 -fvisibility=hidden -fvisibility-inlines-hidden "-Wa,-I${folder}")
  set_property(SOURCE "${source}" APPEND PROPERTY OBJECT_DEPENDS "${folder}/${component}.bin")
  set_property(SOURCE "${source}" APPEND PROPERTY
               COMPILE_OPTIONS "-frandom-seed=aot/${component}.cpp")
endfunction()
