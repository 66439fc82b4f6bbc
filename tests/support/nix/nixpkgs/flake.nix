# Stands in for nixpkgs where there is no network: the names that kbuild's flake uses, given by the
# host's own compilers. See docs/explanation/nix.md.
{
  outputs =
    { self }:
    {
      legacyPackages.x86_64-linux = import ./. { system = "x86_64-linux"; };
    };
}
