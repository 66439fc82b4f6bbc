# Many small wheels at once: a folder, pinned as a whole. One builder, where a builder for each wheel
# would start pip as often.
{ pkgs, python }:
let
  common = import ./fetching.nix { inherit pkgs python; };
in
{ narHash, wheels }:
let
  line =
    { filename, sha256 }:
    let
      parts = builtins.match "([^-]+)-([^-]+)-.*" filename;
    in
    "${builtins.head parts}==${builtins.elemAt parts 1} --hash=sha256:${sha256}";
in
pkgs.stdenv.mkDerivation (
  common
  // {
    name = "wheels";
    outputHashMode = "recursive";
    outputHashAlgo = "sha256";
    outputHash = narHash;
    requirements = builtins.concatStringsSep "\n" (map line wheels) + "\n";
    buildCommand = ''
      ${common.prepare}
      printf %s "$requirements" > requirements.txt
      $pip --requirement requirements.txt --dest fetched
      chmod 644 fetched/*
      mv fetched $out
    '';
  }
)
