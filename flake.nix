{
  description = "kbuild: packages compute kernels";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    {
      lib.genKernelFlakeOutputs = import ./nix/kernel-flake.nix {
        inherit nixpkgs;
        source = ./.;
      };
    };
}
