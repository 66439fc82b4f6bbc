# What a kernel's flake gives: `kbuild.lib.genKernelFlakeOutputs { inherit self; path = ./.; }`.
#
# Every derivation is lazy: what an output does not name is not evaluated, and needs no `nixpkgs`.
{ nixpkgs, source }:
{
  self,
  # The folder of `build.toml`.
  path,
  # Load every variant with the `kernels` client before it counts as built, where this machine can.
  doGetKernelCheck ? true,
  # Of the package set's Python packages, what the tests import beside Torch, pytest and the client.
  pythonCheckInputs ? (_: [ ]),
  pythonNativeCheckInputs ? (_: [ ]),
  # From kbuild's releases of Torch to those that are wanted.
  torchVersions ? (default: default),
  systems ? [
    "x86_64-linux"
    "aarch64-linux"
    "aarch64-darwin"
  ],
}:
let
  lib = import ./lib.nix;
  inherit (lib) filter listToAttrs;

  toml = lib.readProject path;
  general = toml.general or { };
  choice = {
    inherit toml torchVersions;
  };
  allVariants = import ./variants.nix { inherit lib; } choice;
  allEnvironments = import ./environments.nix { inherit lib; } choice;
  sources = import ./source.nix { inherit lib; } {
    root = path;
    inherit toml;
    variants = allVariants;
  };
  project = {
    name = general.name;
    pythonName = builtins.replaceStrings [ "-" ] [ "_" ] general.name;
    repoId = general.hub.repo-id or general.name;
    commit = self.rev or (if self ? dirtyRev then builtins.substring 0 40 self.dirtyRev else null);
    isDirty = !(self ? rev);
    tests = sources.parts [ "tests" ];
  };

  outputsOf =
    system:
    import ./kernel-outputs.nix {
      inherit
        lib
        system
        source
        sources
        doGetKernelCheck
        ;
      pkgs = import nixpkgs {
        inherit system;
        config.allowUnfree = true;
      };
      checkInputs = packages: pythonCheckInputs packages ++ pythonNativeCheckInputs packages;
      inherit project;
      variants = filter (variant: variant.isNoarch || variant.system == system) allVariants;
      environments = filter (entry: entry.system == system && entry.variant != null) allEnvironments;
    };
  each = listToAttrs (
    map (system: {
      name = system;
      value = outputsOf system;
    }) systems
  );
  part = name: builtins.mapAttrs (_: outputs: outputs.${name}) each;
in
{
  packages = part "packages";
  legacyPackages = part "legacyPackages";
  apps = part "apps";
  checks = part "checks";
  devShells = part "devShells";
  formatter = part "formatter";
}
