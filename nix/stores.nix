# kbuild's own installations of Torch and CUDA, made by its installer from fetched wheels: folders as
# they are in its store.
{
  lib,
  toolchain,
  kbuild,
}:
let
  inherit (toolchain) build pins;

  # `kbuild toolchain install NAME`, offline, with a lock that has this release alone: pins of
  # another one then change nothing here.
  install =
    name: lock: wheels:
    build {
      name = "kbuild-${name}";
      lock = builtins.toJSON ({ format = pins.format; cuda = { }; torch = { }; } // lock);
      script = ''
        ${toolchain.linkWheels wheels}
        export HOME=$PWD KBUILD_CACHE_DIR=$PWD/cache
        export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS=$PWD/wheels
        mkdir $out cache
        ln -s $out cache/store
        printf %s "$lock" > lock.json
        ${kbuild}/bin/kbuild toolchain install ${name} --lock-file lock.json
        rm -rf $out/.[!.]*
        chmod -R u+w $out
        autoPatchelf $out
      '';
    };

  torch =
    release: forDevice:
    let
      wheel = toolchain.torchWheel release forDevice;
      entry = pins.torch.${release} // {
        wheels = [ wheel ];
      };
    in
    install "torch-${release}" { torch.${release} = entry; } [ wheel ];

  cuda =
    release:
    let
      entry = pins.cuda.${release};
    in
    install "cuda-${release}" { cuda.${release} = entry; } (entry.programs ++ entry.libraries);

  # The package set's own CUDA, for releases of which no wheels hold a compiler: `cudaPackages_12_6`.
  packaged =
    release:
    let
      set = "cudaPackages_${builtins.replaceStrings [ "." ] [ "_" ] release}";
    in
    toolchain.pkgs.${set}.cudatoolkit or null;
  packagedOf =
    variant:
    if variant.backend != "cuda" || pins.cuda ? ${variant.toolkit} then
      null
    else
      packaged variant.toolkit;

  # As kbuild's plan asks for: the stable ABI of a release is built against that one or the next.
  torchOf =
    variant:
    toolchain.torchRelease {
      torch = variant.release;
      exact = variant.framework == "torch";
    };
in
{
  # The installations that a variant is built with.
  of =
    variant:
    lib.optional (!variant.isNoarch) (torch (torchOf variant) (variant.backend != "cpu"))
    ++ lib.optional (variant.toolkit != null && pins.cuda ? ${variant.toolkit}) (cuda variant.toolkit);

  # Shell lines before kbuild is started.
  setup =
    variant:
    let
      toolkit = if variant.isNoarch then null else packagedOf variant;
    in
    if toolkit == null then "" else "export CUDA_HOME=${toolkit}";

  # Why a variant cannot be built here, null when it can.
  refuses =
    variant:
    if !toolchain.hasWheels then
      "wheels of compilers, and of what kbuild needs, are not pinned for ${toolchain.system}"
    else if variant.isNoarch then
      null
    else if variant.system != toolchain.system then
      "is for ${variant.system}"
    else if variant.languages != [ ] then
      "kernels in ${builtins.concatStringsSep ", " variant.languages} are compiled by its wheels, which derivations do not have yet"
    else if variant.framework == "tvm-ffi" then
      "apache-tvm-ffi is not taken from wheels"
    else if !(lib.elem variant.backend [ "cpu" "cuda" ]) then
      "no wheels hold a ${variant.backend} compiler"
    else if variant.backend == "cuda" && !(pins.cuda ? ${variant.toolkit}) && packagedOf variant == null then
      "neither wheels nor the package set have the compiler of CUDA ${variant.toolkit}"
    else if torchOf variant == null then
      "Torch ${variant.release} is not pinned"
    else
      null;
}
