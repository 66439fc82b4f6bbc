{
  # Nix fetches it over the network; `--override-input kbuild path:DIR` takes a checkout instead.
  inputs.kbuild.url = "github:kbuild/kbuild";

  outputs =
    { self, kbuild }:
    kbuild.lib.genKernelFlakeOutputs {
      inherit self;
      path = ./.;
    };
}
