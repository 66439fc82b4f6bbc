# The derivations of one kernel: its variants, and the bundle of them.
#
# A variant is built by kbuild itself, with its local driver and its toolchain from wheels, inside
# Nix's sandbox. Nothing here knows a compiler flag: what is compiled and how is kbuild's plan.
{
  lib,
  toolchain,
  kbuild,
  stores,
  # Of source.nix.
  sources,
  # `{ name, state, builderState }`: states of the sources in git, null where Nix knows no commit.
  project,
}:
let
  inherit (lib) concatStringsSep;
  inherit (toolchain) build;

  # An own cache folder for kbuild; installed toolchains are links to the Nix store.
  prepare = variant: ''
    # A builder's stderr is a terminal, and nobody looks at it: no bar.
    export HOME=$PWD/home KBUILD_CACHE_DIR=$PWD/cache CI=1 TERM=dumb
    mkdir -p "$HOME" cache/store
    ${concatStringsSep "\n" (map (folder: "ln -s ${folder}/* cache/store/") (stores.of variant))}
    ${stores.setup variant}
  '';

  # A folder that `sandbox-paths` may lend, where kbuild's objects outlive the sandbox. No hash changes
  # with it. What was built with it once is compiled from nothing the next time, so that
  # `nix build --rebuild` proves what it should.
  lendCache = ''
    lent=/var/cache/kbuild built=
    if [ -d $lent ] && [ -w $lent ]; then
      if [ -e "$lent/built/''${out##*/}" ]; then
        echo "compile cache: not used, this very derivation was built with it before"
      else
        echo "compile cache: $lent"
        umask 002
        mkdir -p $lent/objects $lent/built
        ln -s $lent/objects cache/objects
        export KBUILD_SHARED_CACHE=1  # by all of Nix's builders
        built=$lent/built/''${out##*/}
      fi
    fi
  '';
  returnCache = ''
    if [ -n "$built" ]; then : > "$built"; fi
  '';

  # kbuild plans exactly the variant that was named at evaluation.
  assertPlan = name: ''
    planned=$(${kbuild}/bin/kbuild plan project --no-toolchain --variant ${name} --json |
      ${kbuild}/bin/python3 -c 'import json, sys; print(*(p["variant"] for p in json.load(sys.stdin)))')
    if [ "$planned" != ${name} ]; then
      echo "kbuild plans \`$planned\` where the flake names ${name}" >&2
      exit 1
    fi
  '';

  # kbuild's own checks have looked at search paths of libraries; this looks at every byte.
  refuseStorePaths = ''
    if grep -rlF /nix/store "$out"; then
      echo "the files above name paths in the Nix store" >&2
      exit 1
    fi
  '';

  compile =
    variant:
    build {
      name = "${project.name}-${variant.name}";
      allowedReferences = [ ];
      script = ''
        ${prepare variant}
        ${lendCache}
        ${sources.variants.${variant.name}.unpack "project"}
        ${kbuild}/bin/kbuild check-config project
        ${assertPlan variant.name}
        ${kbuild}/bin/kbuild build project --color never \
          --toolchain ${if variant.isNoarch then "auto" else "wheels"} \
          --variant ${variant.name} --jobs "''${NIX_BUILD_CORES:-1}" \
          --max-file-size 1T --output built
        cp -R built/${variant.name} $out
        ${refuseStorePaths}
        ${returnCache}
      '';
    };

  # The commit goes in last: another one compiles nothing again. `metadata.json` is not part of the
  # digest in it. `proof` is what has to be built before, and is no part of the result.
  stamp =
    variant: compiled: proof:
    if project.state == null && project.builderState == null && proof == null then
      compiled
    else
      build {
        name = "${project.name}-${variant.name}";
        allowedReferences = [ ];
        inherit proof;
        STATES = builtins.toJSON {
          kernel = project.state;
          builder = project.builderState;
        };
        preferLocalBuild = true;
        script = ''
          cp -R ${compiled} $out
          chmod u+w $out $out/metadata.json
          ${kbuild}/bin/python3 ${./stamp.py} $out/metadata.json
        '';
      };

  nothing = ''
    echo "no variant of ${project.name} is built for ${toolchain.system};" \
      "\`nix eval --json .#unsupported\` says why" >&2
    exit 1
  '';

  # What a kernel's page and its users get: variants as links, benchmarks, the filled card.
  bundle =
    name: variants:
    build {
      name = "${project.name}-${name}";
      preferLocalBuild = true;
      script = if variants == [ ] then nothing else ''
        mkdir -p $out home
        export HOME=$PWD/home KBUILD_CACHE_DIR=$PWD/cache
        ${concatStringsSep "\n" (
          map (variant: "ln -s ${variant.output} $out/${variant.name}") variants
        )}
        cp -R ${
          sources.parts [
            "build.toml"
            "CARD.md"
            "benchmarks"
            "torch-ext"
            "tvm-ffi-ext"
          ]
        } project
        chmod -R u+w project
        ln -s $out project/build
        if [ -d project/benchmarks ]; then cp -R project/benchmarks $out/; fi
        if [ -f project/CARD.md ]; then
          ${kbuild}/bin/kbuild fill-card project $out/CARD.md ||
            echo "the card above is not in the bundle" >&2
        fi
      '';
    };
in
{
  inherit bundle compile stamp;
}
