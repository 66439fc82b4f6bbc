# The variants of a project, as `kbuild list-variants --all` lists them and in its order.
#
#   import ./variants.nix { inherit lib; } { inherit toml; }
#
# Further arguments of the second call: `torchVersions`, from the releases of versions.toml to those
# that are wanted (its tables, or their names), and `systems`, a list of those that are wanted.
{
  lib,
  versions ? lib.readToml ../kbuild/project/matrix/versions.toml,
  ...
}:
(import ./selection.nix { inherit lib versions; }).variants
