# Shells for working on a kernel, and for trying it.
{
  lib,
  toolchain,
  kbuild,
  stores,
  # `{ name, pythonName, repoId }`
  project,
  tests,
}:
let
  inherit (lib) concatStringsSep;

  shell =
    { name, inputs, hook }:
    toolchain.build {
      inherit name;
      nativeBuildInputs = inputs ++ [ toolchain.pkgs.git ];
      shellHook = hook;
      script = ''
        echo "${name} is for \`nix develop\`" > $out
      '';
    };

  # kbuild finds the toolchains in a cache folder of the project's own; they are links to the Nix store.
  toolchains = variants: ''
    export KBUILD_TOOLCHAIN=wheels KBUILD_CACHE_DIR="$PWD/.kbuild/nix"
    rm -rf "$KBUILD_CACHE_DIR/store"
    mkdir -p "$KBUILD_CACHE_DIR/store"
    ${concatStringsSep "\n" (
      map (folder: ''ln -sf ${folder}/* "$KBUILD_CACHE_DIR/store/"'') (
        lib.concatMap stores.of variants
      )
    )}
    export LOCAL_KERNELS="${project.repoId}=$PWD/build"
  '';

  environmentPath = entry: ''
    export PATH=${tests.environmentOf entry}/bin:$PATH
  '';
in
{
  # `nix develop`: kbuild, the toolchains of these variants, and a Torch to load the kernel with.
  development =
    variants: entry:
    shell {
      name = "${project.name}-shell";
      inputs = [ kbuild ];
      hook = toolchains variants + (if entry == null then "" else environmentPath entry);
    };

  # `nix develop .#test`: the built variant as its users have it.
  trial =
    entry: target:
    shell {
      name = "${project.name}-test-shell";
      inputs = [ ];
      hook = ''
        ${environmentPath entry}
        export LOCAL_KERNELS="${project.repoId}=${target}"
        # For root, nothing keeps Python from writing into the store.
        export PYTHONDONTWRITEBYTECODE=1
        package=$(mktemp -d)
        ln -s ${target} "$package/${project.pythonName}"
        export PYTHONPATH=$package''${PYTHONPATH:+:$PYTHONPATH}
      '';
    };
}
