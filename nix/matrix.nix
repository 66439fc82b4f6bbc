# kbuild/project/matrix/versions.toml as a list of environments, in the order of the file, and the rules of
# kbuild/plan/selection.py for which of them a project is built for.
{
  lib,
  versions ? lib.readToml ../kbuild/project/matrix/versions.toml,
}:
let
  inherit (lib) concatMap elem filter isString;

  environmentsOf =
    release:
    concatMap (
      build:
      concatMap (
        toolkit:
        map (system: {
          inherit (build) backend;
          inherit system toolkit;
          torch = release.version;
          tvmFfi = build.tvm-ffi or null;
          isDefault = release.default;
        }) build.systems
      ) (build.versions or [ null ])
    ) release.builds;

  # What `torchVersions` gives: releases as tables, or just by name.
  chosenReleases =
    torchVersions:
    map (
      choice:
      if isString choice then
        let
          named = filter (release: release.version == choice) versions.torch;
        in
        if named == [ ] then
          throw "torchVersions: kbuild has no Torch ${choice}, only ${
            lib.concatStringsSep ", " (map (release: release.version) versions.torch)
          }"
        else
          builtins.head named
      else
        choice
    ) (torchVersions versions.torch);

  inBounds =
    toml: entry:
    let
      torch = lib.table (toml.torch or { });
      backend = lib.table ((lib.table (toml.general or { })).${entry.backend} or { });
      fits =
        bounds: text:
        lib.isWithin (bound bounds "minver") (bound bounds "maxver") (lib.version text);
      bound = bounds: key: lib.version (bounds.${key} or null);
    in
    fits torch entry.torch && (entry.toolkit == null || fits backend entry.toolkit);
in
{
  toml,
  torchVersions ? (default: default),
  # Only these, where it is a list.
  systems ? null,
}:
filter (
  entry:
  elem entry.backend (lib.strings (toml.general.backends or null))
  && (systems == null || elem entry.system systems)
  && inBounds toml entry
) (concatMap environmentsOf (chosenReleases torchVersions))
