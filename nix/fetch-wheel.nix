# One wheel, by its name and digest, from the package index that the user's pip is set up for.
#
# Its path in the store depends on the name and the digest alone: a wheel that was put there another
# way (`nix-store --add-fixed sha256 FILE`, a binary cache) is not fetched at all.
{ pkgs, python }:
let
  # The user's pip settings; with a daemon they are those of the daemon's environment.
  settings = [
    "PIP_CONFIG_FILE"
    "PIP_INDEX_URL"
    "PIP_EXTRA_INDEX_URL"
    "PIP_FIND_LINKS"
    "PIP_TRUSTED_HOST"
    "PIP_CERT"
    "PIP_CLIENT_CERT"
    "PIP_PROXY"
    "PIP_TIMEOUT"
    "http_proxy"
    "https_proxy"
    "all_proxy"
    "no_proxy"
  ];
  # torch-2.14.1-cp311-cp311-manylinux_2_28_x86_64.whl -> its parts; platforms may be several.
  parts = filename: builtins.match "([^-]+)-([^-]+)-([^-]+)-([^-]+)-([^-]+)[.]whl" filename;
in
{ filename, sha256, ... }:
let
  fields = parts filename;
  field = builtins.elemAt fields;
  each =
    option: text:
    builtins.concatStringsSep " " (
      map (value: "--${option}=${value}") (builtins.filter builtins.isString (builtins.split "[.]" text))
    );
  # `cp310-abi3` is taken by pip for 3.10; `py3-none` for any.
  digits = builtins.match "(cp|py)([0-9])([0-9]*).*" (field 2);
  minor = builtins.elemAt digits 2;
  version = "${builtins.elemAt digits 1}${if minor == "" then "" else ".${minor}"}";
in
pkgs.stdenv.mkDerivation {
  name = filename;
  outputHashMode = "flat";
  outputHashAlgo = "sha256";
  outputHash = sha256;
  impureEnvVars = settings;
  nativeBuildInputs = [ python ];
  certificates = "${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt";
  buildCommand = ''
    export HOME=$TMPDIR
    if [ -z "''${PIP_CERT:-}" ] && [ -f "$certificates" ]; then export SSL_CERT_FILE=$certificates; fi
    echo '${field 0}===${field 1} --hash=sha256:${sha256}' > requirements.txt
    python3 -m pip --disable-pip-version-check download --quiet --no-deps --no-cache-dir --ignore-requires-python \
      --require-hashes --only-binary=:all: --requirement requirements.txt --dest fetched \
      --implementation=${if builtins.head digits == "py" then "py" else "cp"} --python-version=${version} \
      ${each "abi" (field 3)} ${each "platform" (field 4)}
    mv fetched/${filename} $out
  '';
  # Big files are better fetched where the build was started.
  preferLocalBuild = true;
}
