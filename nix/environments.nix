# Where a project's tests can run, as `kbuild list-variants --arch --all` lists it; called as
# variants.nix is.
{
  lib,
  versions ? lib.readToml ../kbuild/project/matrix/versions.toml,
  ...
}:
(import ./selection.nix { inherit lib versions; }).environments
