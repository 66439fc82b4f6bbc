# One wheel, by its name and digest, from the package index that the user's pip is set up for.
#
# Its path in the store depends on the name and the digest alone: a wheel that was put there another
# way (`nix-store --add-fixed sha256 FILE`, a binary cache) is not fetched at all.
{ pkgs, python }:
let
  common = import ./fetching.nix { inherit pkgs python; };
  # torch-2.14.1-cp311-cp311-manylinux_2_28_x86_64.whl -> its parts; platforms may be several.
  parts = builtins.match "([^-]+)-([^-]+)-([^-]+)-([^-]+)-([^-]+)[.]whl";
in
{ filename, sha256, ... }:
let
  field = builtins.elemAt (parts filename);
  each =
    option: text:
    builtins.concatStringsSep " " (
      map (value: "--${option}=${value}") (builtins.filter builtins.isString (builtins.split "[.]" text))
    );
  # `cp310` is an interpreter of its own, `py3` any.
  tag = builtins.match "(cp|py)([0-9])([0-9]*).*" (field 2);
  minor = builtins.elemAt tag 2;
  version = "${builtins.elemAt tag 1}${if minor == "" then "" else ".${minor}"}";
in
pkgs.stdenv.mkDerivation (
  common
  // {
    name = filename;
    outputHashMode = "flat";
    outputHashAlgo = "sha256";
    outputHash = sha256;
    buildCommand = ''
      ${common.prepare}
      echo '${field 0}===${field 1} --hash=sha256:${sha256}' > requirements.txt
      $pip --requirement requirements.txt --dest fetched \
        --implementation=${builtins.head tag} --python-version=${version} \
        ${each "abi" (field 3)} ${each "platform" (field 4)}
      mv fetched/${filename} $out
    '';
  }
)
