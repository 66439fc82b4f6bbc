# What a kernel's flake gives: `kbuild.lib.genKernelFlakeOutputs { inherit self; path = ./.; }`.
#
# Every derivation is lazy: what an output does not name is not evaluated, and needs no `nixpkgs`.
{
  nixpkgs,
  # kbuild's own flake.
  kbuild,
}:
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
    state = stateOf self;
    builderState = stateOf kbuild;
    tests = sources.parts [ "tests" ];
  };

  # Nix before 2.16 tells no commit when there are changes on top.
  stateOf =
    flake:
    if flake ? rev then
      {
        commit = flake.rev;
        dirty = false;
      }
    else if flake ? dirtyRev then
      {
        commit = builtins.head (builtins.match "([0-9a-f]+).*" flake.dirtyRev);
        dirty = true;
      }
    else
      null;

  outputsOf =
    system:
    import ./kernel-outputs.nix {
      inherit
        lib
        system
        sources
        doGetKernelCheck
        ;
      pkgs = import nixpkgs {
        inherit system;
        config.allowUnfree = true;
      };
      checkInputs = packages: pythonCheckInputs packages ++ pythonNativeCheckInputs packages;
      inherit project;
      source = ../.;
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
