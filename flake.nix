{
  description = "kbuild packages compute kernels: from build.toml to artefacts that any PyTorch user can load";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      each =
        valueOf:
        builtins.listToAttrs (
          map (system: {
            name = system;
            value = valueOf system;
          }) systems
        );
      packageSet =
        system:
        import nixpkgs {
          inherit system;
          config.allowUnfree = true;
        };
      toolchain = system: import ./nix/toolchain-nixpkgs.nix { pkgs = packageSet system; };
      kbuild =
        system:
        import ./nix/kbuild.nix {
          toolchain = toolchain system;
          source = ./.;
        };
      # Wheels that kbuild's own dependencies come from are pinned for this system alone.
      supported = valueOf: each (system: if (toolchain system).hasWheels then valueOf system else { });
    in
    {
      lib.genKernelFlakeOutputs = import ./nix/kernel-flake.nix {
        inherit nixpkgs;
        kbuild = self;
      };

      packages = supported (system: {
        default = kbuild system;
        kbuild = kbuild system;
      });

      apps = supported (system: {
        default = self.apps.${system}.kbuild;
        kbuild = {
          type = "app";
          program = "${kbuild system}/bin/kbuild";
        };
      });

      checks = supported (
        system:
        let
          relu =
            (self.lib.genKernelFlakeOutputs {
              inherit self;
              path = ./examples/relu;
            }).checks.${system};
        in
        { kbuild = kbuild system; } // relu
      );

      devShells = supported (system: {
        default = (toolchain system).build {
          name = "kbuild-shell";
          nativeBuildInputs = [
            (kbuild system)
            (packageSet system).git
          ];
          script = "touch $out";
        };
      });

      formatter = each (system: (packageSet system).nixfmt-tree);
    };
}
