# `import nixpkgs { system = ...; }` of the stand-in.
#
# host.json says where this machine's programs are and which versions they have; it is written by
# tests/support/nix/stand_in.py beside a copy of this file. Programs come in through `sandbox-paths`. Their
# versions are part of every derivation, so a new compiler gives new hashes.
{
  system,
  config ? { },
}:
let
  host = builtins.fromJSON (builtins.readFile ./host.json);

  # What `nix develop` sources, and what every builder starts with.
  setupFolder = derivation {
    name = "stdenv-host";
    inherit system;
    builder = "/bin/bash";
    args = [
      "-c"
      ''
        export PATH=/usr/bin
        mkdir $out
        cp ${./setup.sh} $out/setup
        exit 0
      ''
    ];
    outputs = [ "out" ];
  };

  # A derivation is a set of attributes; the names below are for its users, not for its builder.
  forUsersOnly = [
    "meta"
    "passthru"
  ];

  mkDerivation =
    attributes:
    let
      isFetch = attributes ? outputHash;
      given = builtins.removeAttrs attributes forUsersOnly;
      fingerprint = if isFetch then { } else { hostVersions = builtins.toJSON host.versions; };
    in
    derivation (
      fingerprint
      // given
      // {
        inherit system;
        builder = "/bin/bash";
        args = [
          "-e"
          ./builder.sh
        ];
        stdenv = setupFolder;
        outputs = [ "out" ];
        hostPath = "/usr/bin";
      }
    )
    // (attributes.passthru or { })
    // {
      meta = attributes.meta or { };
    };
  hostPython = {
    outPath = host.python.prefix;
    pythonVersion = host.python.version;
    withPackages = _: hostPython;
  };
in
{
  inherit config system;
  stdenv = {
    inherit mkDerivation;
    hostPlatform = {
      inherit system;
    };
  };
  # Sandboxed builds find `/bin/sh` everywhere; programs that run outside need bash.
  runtimeShell = "/bin/bash";
  python3 = hostPython;
  bashInteractive = {
    outPath = "/usr";
  };
  coreutils = {
    outPath = "/usr";
  };
  git = {
    outPath = "/usr";
  };
  cacert = {
    outPath = "/nonexistent";
  };
  # A hook of nixpkgs that gives ELF files of wheels an interpreter; the host's works as it is.
  autoPatchelfHook = {
    outPath = "/usr";
  };
  # `nix fmt`: something that exists.
  nixfmt-tree = mkDerivation {
    name = "treefmt";
    buildCommand = ''
      mkdir -p $out/bin
      printf '#!/bin/bash\necho "the stand-in has no nixfmt" >&2\n' > $out/bin/treefmt
      chmod +x $out/bin/treefmt
    '';
    meta.mainProgram = "treefmt";
  };
}
