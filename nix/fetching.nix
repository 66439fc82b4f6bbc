# What builders have in common that fetch wheels through the user's pip.
{ pkgs, python }:
{
  # pip's settings; with a daemon they are those of the daemon's environment.
  impureEnvVars = [
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
  nativeBuildInputs = [ python ];
  certificates = "${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt";
  # Fetching is better done where the build was started, settings and all.
  preferLocalBuild = true;

  # Defines `$pip`: downloads what the digests allow, and nothing else.
  prepare = ''
    export HOME=$TMPDIR
    if [ -z "''${PIP_CERT:-}" ] && [ -f "$certificates" ]; then export SSL_CERT_FILE=$certificates; fi
    pip="python3 -m pip --disable-pip-version-check download --quiet --no-deps --no-cache-dir"
    pip="$pip --ignore-requires-python --require-hashes --only-binary=:all:"
  '';
}
