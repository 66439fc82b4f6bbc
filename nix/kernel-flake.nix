# What a kernel's flake gives: `kbuild.lib.genKernelFlakeOutputs { inherit self; path = ./.; }`.
{ nixpkgs, source }:
{
  self,
  path,
  doGetKernelCheck ? true,
  pythonCheckInputs ? (_: [ ]),
  torchVersions ? (default: default),
}:
let
  lib = import ./lib.nix;
  toml = lib.readProject path;
  variants = import ./variants.nix { inherit lib; } { inherit toml torchVersions; };
  sources = import ./source.nix { inherit lib; } {
    root = path;
    inherit toml variants;
  };
  forSystem =
    system:
    let
      pkgs = import nixpkgs { inherit system; };
      toolchain = import ./toolchain-nixpkgs.nix { inherit pkgs; };
      kbuild = import ./kbuild.nix { inherit toolchain source; };
      stores = import ./stores.nix { inherit lib toolchain kbuild; };
      kernel = import ./kernel.nix {
        inherit lib toolchain kbuild sources;
        stores = stores.of;
        project = {
          inherit (toml.general) name;
        };
      };
      able = lib.filter (variant: stores.refuses variant == null) variants;
    in
    lib.listToAttrs (
      map (variant: {
        inherit (variant) name;
        value = kernel.mkVariant variant;
      }) able
    );
in
{
  packages.x86_64-linux = {
    redistributable = forSystem "x86_64-linux";
  };
}
