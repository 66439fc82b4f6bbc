{
  inputs.kbuild.url = "github:kbuild/kbuild";

  outputs =
    { self, kbuild }:
    kbuild.lib.genKernelFlakeOutputs {
      inherit self;
      path = ./.;
    };
}
