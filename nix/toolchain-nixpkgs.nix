# Everything that kbuild's derivations take from a package set, and nothing else does.
#
# Written against few names of nixpkgs: `stdenv`, `python3`, `runtimeShell`, `coreutils`, `cacert`,
# `autoPatchelfHook`, `git`, `bashInteractive`, `nixfmt-tree`. tests/support/nix/nixpkgs offers the
# same names from a host's programs. All derivations are a `buildCommand`: no phases, no hooks that
# run by themselves. Compilers for devices, Torch and kbuild's Python packages are wheels, by kbuild's locks.
{ pkgs }:
let
  inherit (builtins)
    concatStringsSep
    elem
    filter
    fromJSON
    head
    match
    readFile
    ;

  sitePackages = "lib/python${pkgs.python3.pythonVersion}/site-packages";
  system = pkgs.stdenv.hostPlatform.system;
  python = pkgs.python3.withPackages (packages: [ packages.pip ]);
  tag = "cp${builtins.replaceStrings [ "." ] [ "" ] pkgs.python3.pythonVersion}";

  pins = fromJSON (readFile ../kbuild/toolchains/wheels/lock.json);
  lockFile = ./locks + "/python-${pkgs.python3.pythonVersion}.json";
  pythonPins =
    if builtins.pathExists lockFile then
      fromJSON (readFile lockFile)
    else
      throw "nix/locks has no wheels for Python ${pkgs.python3.pythonVersion}; scripts/lock_nix.py pins them";

  fetchWheel = import ./fetch-wheel.nix { inherit pkgs python; };

  # A derivation that runs a script with a C++ compiler and Python.
  build =
    { name, script, ... }@attributes:
    pkgs.stdenv.mkDerivation (
      removeAttrs attributes [ "script" ]
      // {
        buildCommand = script;
        nativeBuildInputs = [
          python
          pkgs.autoPatchelfHook
        ]
        ++ (attributes.nativeBuildInputs or [ ]);
        # nixpkgs' compilers put store paths into what they link, and flags of their own before ours.
        NIX_DONT_SET_RPATH = "1";
        hardeningDisable = [ "all" ];
        # Drivers and libraries of other wheels are there where a kernel runs, not here.
        autoPatchelfIgnoreMissingDeps = [ "*" ];
      }
    );

  fetchWheels = import ./fetch-wheels.nix { inherit pkgs python; };

  # Shell lines that make ./wheels, a folder as pip's --find-links takes it.
  linkWheels =
    wheels:
    concatStringsSep "\n" (
      [ "mkdir -p wheels" ] ++ map (wheel: "ln -s ${fetchWheel wheel} wheels/${wheel.filename}") wheels
    );

  requirement =
    wheel:
    let
      parts = match "([^-]+)-([^-]+)-.*" wheel.filename;
    in
    "'${head parts}===${builtins.elemAt parts 1}'";

  # An interpreter with exactly these wheels, as a virtual environment. Bytecode is compiled and never
  # checked against its source again: without it every import of Torch costs 20 s.
  environment =
    name: pins:
    build {
      inherit name;
      script = ''
        ${linkWheels pins.large}
        ln -s ${fetchWheels pins.small}/* wheels/
        ${pkgs.python3}/bin/python3 -m venv --without-pip $out
        export HOME=$PWD PIP_CONFIG_FILE=/dev/null
        python3 -m pip --disable-pip-version-check install --quiet --no-index \
          --find-links wheels --no-deps --no-compile --root-user-action=ignore \
          --target $out/${sitePackages} ${concatStringsSep " " (map requirement (pins.large ++ pins.small.wheels))}
        # Programs stay; scripts would start another interpreter.
        for file in $out/${sitePackages}/bin/*; do
          if [ "$(head -c 4 "$file")" = $'\x7fELF' ]; then mv "$file" $out/bin/; fi
        done
        rm -rf $out/${sitePackages}/bin
        autoPatchelf $out
        # Some packages ship templates that are no Python: those fail, and are never imported.
        $out/bin/python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash \
          $out/${sitePackages} > /dev/null || true
      '';
      passthru = { inherit sitePackages; };
    };

  # The wheel of a Torch release that headers are taken from: one for this Python, so that the
  # environment for tests needs no other; without CUDA when there is one, being smaller.
  torchWheel =
    release: forDevice:
    let
      wheels = pins.torch.${release}.wheels;
      isSmall = wheel: match "torch-[^-]+[+]cpu-.*" wheel.filename != null;
      fitting = filter (wheel: match ".*-${tag}-${tag}-.*" wheel.filename != null) wheels;
      whole = filter (wheel: !(isSmall wheel));
    in
    # What is for the CPU alone lacks headers that code for devices includes.
    head (if forDevice then whole fitting ++ whole wheels else filter isSmall fitting ++ fitting ++ wheels);

  atLeast = floor: release: builtins.compareVersions release floor >= 0;
  releases = builtins.sort (a: b: builtins.compareVersions a b < 0) (builtins.attrNames pins.torch);

  # The pinned release that a variant is built against, null when there is none: the stable ABI of
  # 2.11 is built against any Torch from 2.11 on.
  torchRelease =
    { torch, exact }:
    let
      found = filter (release: if exact then release == torch else atLeast torch release) releases;
    in
    if found == [ ] then null else head found;
in
{
  inherit
    atLeast
    build
    environment
    fetchWheel
    linkWheels
    pins
    pythonPins
    python
    sitePackages
    system
    torchRelease
    torchWheel
    ;
  inherit pkgs;
  inherit (pkgs) runtimeShell;

  # Systems that wheels with compilers and Torch are pinned for.
  hasWheels = elem system [ "x86_64-linux" ];
}
