# The derivations of one kernel: its variants, and what is made of them.
#
# A variant is built by kbuild itself, with its local driver and its toolchain from wheels, inside
# Nix's sandbox. Nothing here knows a compiler flag: what is compiled and how is kbuild's plan.
{
  lib,
  toolchain,
  kbuild,
  stores,
  # `{ name, repoId, tests, card }` and the project's filtered sources.
  project,
  sources,
}:
let
  inherit (lib) concatStringsSep quoted;
  inherit (toolchain) build;

  # An own cache folder for kbuild; installed toolchains are links to the store.
  prepare = folders: ''
    export HOME=$PWD/home KBUILD_CACHE_DIR=$PWD/cache
    mkdir -p "$HOME" cache/store
    ${concatStringsSep "\n" (map (folder: "ln -s ${folder}/* cache/store/") folders)}
  '';

  # A folder that `sandbox-paths` may lend: kbuild's objects outlive the sandbox there. The hash of
  # the derivation does not change with it. A derivation that was built with it once is compiled from
  # nothing the next time, so `nix build --rebuild` proves what it should.
  lendCache = ''
    lent=/var/cache/kbuild
    if [ -d $lent ] && [ -w $lent ]; then
      built=$lent/built/''${out##*/}
      if [ -e "$built" ]; then
        echo "compile cache: not used, this derivation was built before"
      else
        echo "compile cache: $lent"
        (umask 0; mkdir -p $lent/objects $lent/built)
        ln -s $lent/objects cache/objects
      fi
    else
      built=
    fi
  '';
  markBuilt = ''
    if [ -n "$built" ]; then : > "$built" || true; fi
  '';

  # kbuild plans exactly the variant that was named at evaluation.
  assertPlan = name: ''
    planned=$(${kbuild}/bin/kbuild plan project --no-toolchain --variant ${name} --json |
      python3 -S -c 'import json, sys; print(*(plan["variant"] for plan in json.load(sys.stdin)))')
    if [ "$planned" != ${name} ]; then
      echo "kbuild plans \`$planned\` where the flake names ${name}" >&2
      exit 1
    fi
  '';

  # Only what may be there: no store paths, no search paths.
  examine = ''
    if grep -rlF -e /nix/store "$out"; then
      echo "these files of the variant name paths in the Nix store" >&2
      exit 1
    fi
  '';

  mkVariant =
    variant:
    build {
      name = "${project.name}-${variant.name}";
      # What was made is of no use to a machine of another kind, and large enough for a fleet.
      requiredSystemFeatures = [ ];
      enableParallelBuilding = true;
      allowedReferences = [ ];
      script = ''
        ${prepare (stores variant)}
        ${lendCache}
        ${sources.variants.${variant.name}.unpack "project"}
        ${assertPlan variant.name}
        ${kbuild}/bin/kbuild build project --color never --toolchain wheels \
          --variant ${variant.name} --jobs "''${NIX_BUILD_CORES:-1}" --output built
        mv built/${variant.name} $out
        ${examine}
        ${markBuilt}
      '';
    };
in
{
  inherit mkVariant;
}
