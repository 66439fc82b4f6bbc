# What builders have in common that fetch wheels through the user's pip.
{ pkgs, python }:
{
  # pip's settings, and what it is to read besides; with a daemon, those of the daemon's environment.
  impureEnvVars = [
    "PIP_CONFIG_FILE"
    "PIP_INDEX_URL"
    "PIP_EXTRA_INDEX_URL"
    "PIP_FIND_LINKS"
    "PIP_NO_INDEX"
    "PIP_TRUSTED_HOST"
    "PIP_CERT"
    "PIP_CLIENT_CERT"
    "PIP_PROXY"
    "PIP_TIMEOUT"
    "PIP_DEFAULT_TIMEOUT"
    "PIP_RETRIES"
    "http_proxy"
    "https_proxy"
    "all_proxy"
    "no_proxy"
    "HTTP_PROXY"
    "HTTPS_PROXY"
    "ALL_PROXY"
    "NO_PROXY"
  ];
  nativeBuildInputs = [ python ];
  certificates = "${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt";
  # Fetching is better done where the build was started, settings and all.
  preferLocalBuild = true;

  # Of a configuration, what says where wheels come from. The rest would change what is fetched, or
  # name files that are not here: constraints, a target, a user's site. Credentials may be
  # in a file beside the configuration, `pip.conf.netrc`.
  settings = ../kbuild/toolchains/wheels/settings.py;

  # Defines `$pip`: downloads what the digests allow, and nothing else.
  prepare = ''
    export HOME=$TMPDIR
    # Nix makes variables empty that are not set; an empty `http_proxy` would hide `HTTP_PROXY`.
    for name in $impureEnvVars; do if [ -z "''${!name}" ]; then unset "$name"; fi; done
    netrc=''${PIP_CONFIG_FILE:-none}.netrc
    if [ -f "$netrc" ]; then export NETRC=$netrc; fi
    PIP_QUIET=0 PIP_VERBOSE=0 PIP_USER=0 PIP_GLOBAL=0 PIP_SITE=0 PIP_LOG=/dev/null \
      python3 -m pip --disable-pip-version-check config list > "$TMPDIR/listing"
    python3 "$settings" < "$TMPDIR/listing" > "$TMPDIR/settings.sh"
    source "$TMPDIR/settings.sh"
    if [ -z "''${PIP_CERT:-}" ] && [ -f "$certificates" ]; then export SSL_CERT_FILE=$certificates; fi
    pip="python3 -m pip --disable-pip-version-check download --quiet --no-deps --no-cache-dir"
    pip="$pip --ignore-requires-python --require-hashes --only-binary=:all:"
  '';
}
