# A kernel flake's outputs for one system.
{
  lib,
  system,
  pkgs,
  source,
  sources,
  project,
  doGetKernelCheck,
  checkInputs,
  # Of this system, and those without one.
  variants,
  environments,
}:
let
  inherit (lib)
    elem
    filter
    head
    listToAttrs
    unique
    ;
  toolchain = import ./toolchain-nixpkgs.nix { inherit pkgs; };
  kbuild = import ./kbuild.nix { inherit toolchain source; };
  stores = import ./stores.nix { inherit lib toolchain kbuild; };
  kernel = import ./kernel.nix {
    inherit
      lib
      toolchain
      kbuild
      stores
      sources
      project
      ;
  };
  tests = import ./kernel-tests.nix {
    inherit lib toolchain kbuild;
    project = project // {
      checkInputs = map (package: "${package}/${toolchain.sitePackages}") (
        checkInputs (pkgs.python3Packages or { })
      );
    };
  };
  shells = import ./kernel-shells.nix {
    inherit
      lib
      toolchain
      kbuild
      stores
      project
      tests
      ;
  };

  named =
    list: valueOf:
    listToAttrs (
      map (entry: {
        inherit (entry) name;
        value = valueOf entry;
      }) list
    );

  # What is built here, by name: compiled, then loaded, then marked with its commit.
  able = filter (variant: stores.refuses variant == null) variants;
  unable = filter (variant: stores.refuses variant != null) variants;
  compiled = named able kernel.compile;
  testable = filter (entry: compiled ? ${entry.variant} && tests.flavourOf entry != null) environments;
  # A variant is loaded in an environment that has its backend and costs no gigabytes.
  proofOf =
    variant:
    let
      fitting = filter (
        entry: entry.variant == variant.name && tests.flavourOf entry == "cpu" && entry.torch == variant.torch
      ) testable;
      anyTorch = filter (entry: entry.variant == variant.name && tests.flavourOf entry == "cpu") testable;
      entry = tests.bestFor "cpu" (if fitting != [ ] then fitting else anyTorch);
    in
    if doGetKernelCheck && entry != null then
      tests.loadCheck entry compiled.${variant.name}
    else
      null;
  # `.compiled` is the derivation that compiles: what `nix build --rebuild` is for.
  outputs = named able (
    variant:
    kernel.stamp variant compiled.${variant.name} (proofOf variant)
    // {
      compiled = compiled.${variant.name};
    }
  );

  bundleOf =
    name: chosen:
    kernel.bundle name (map (variant: variant // { output = outputs.${variant.name}; }) chosen);
  default = filter (variant: variant.isDefault) able;
  backends = unique (map (variant: variant.backend) default);
  ofBackend = backend: filter (variant: variant.backend == backend) default;

  # The best variant of each kind: upstream's order of backends, then the newest Torch.
  rankedBackends = [
    "cuda"
    "rocm"
    "xpu"
    "metal"
    "cpu"
  ];
  newestOf =
    list:
    head (
      builtins.sort (
        one: other: builtins.compareVersions (toString one.torch) (toString other.torch) > 0
      ) list
    );
  bestBackend =
    let
      there = filter (backend: elem backend backends) rankedBackends;
    in
    if there != [ ] then head there else if backends == [ ] then null else head backends;
  ciOf = backend: bundleOf "ci-${backend}" [ (newestOf (ofBackend backend)) ];

  testOf = entry: tests.ciTest entry outputs.${entry.variant};
  ciTests = named testable testOf;
  ciTest = tests.ciTestHere testable testOf;
  small = filter (entry: tests.flavourOf entry == "cpu") testable;
  bestHere = tests.bestFor "cpu" testable;

  # A derivation that is a folder of others, with each of them by its name.
  group =
    name: members:
    toolchain.build {
      inherit name;
      preferLocalBuild = true;
      script = ''
        mkdir $out
        ${lib.concatStringsSep "\n" (
          map (member: "ln -s ${members.${member}} $out/${member}") (lib.attrNames members)
        )}
      '';
    }
    // members;

  program =
    name: text:
    toolchain.build {
      inherit name;
      preferLocalBuild = true;
      script = ''
        mkdir -p $out/bin
        cat > $out/bin/${name} <<'END'
        #!${toolchain.runtimeShell}
        set -eu
        ${text}
        END
        chmod +x $out/bin/${name}
      '';
      meta.mainProgram = name;
    };

  bundle = bundleOf "bundle" default;
  buildAndCopy = program "build-and-copy" ''
    mkdir -p build
    for entry in ${bundle}/*; do
      target=build/''${entry##*/}
      chmod -R u+w "$target" 2> /dev/null || true
      rm -rf "$target"
      cp -RL "$entry" "$target"
      chmod -R u+w "$target"
    done
    echo "build/ has the bundle ${bundle}" >&2
  '';
  buildAndUpload = program "build-and-upload" ''
    exec ${kbuild}/bin/kbuild upload ${bundle} --repo-id ${lib.quoted project.repoId} "$@"
  '';
  # The client's own program, in the environment that tests run in.
  kernels = program "kernels" ''
    exec ${tests.environmentOf bestHere}/bin/python3 -P -c \
      'import sys; from kernels.cli import main; sys.exit(main())' "$@"
  '';
in
{
  packages = {
    inherit bundle;
    default = bundle;
    # The reasons are for kbuild's driver, which asks one question.
    redistributable = group "${project.name}-redistributable" outputs // {
      unsupported = named unable stores.refuses;
    };
    backendBundle = group "${project.name}-backend-bundles" (
      listToAttrs (
        map (backend: {
          name = backend;
          value = bundleOf "bundle-${backend}" (ofBackend backend);
        }) backends
      )
    );
    backendCi = group "${project.name}-backend-ci" (
      listToAttrs (
        map (backend: {
          name = backend;
          value = ciOf backend;
        }) backends
      )
    );
    ci = if bestBackend == null then bundle else ciOf bestBackend;
    ci-test = ciTest;
    ciTests = group "${project.name}-ci-tests" ciTests;
    build-and-copy = buildAndCopy;
    build-and-upload = buildAndUpload;
  }
  // (if bestHere == null then { } else { inherit kernels; });

  # For `nix eval`: lists and reasons, which `packages` may not hold.
  legacyPackages = {
    variants = map (variant: variant.name) able;
    archVariants = map (entry: entry.name) environments;
    unsupported = named unable stores.refuses;
  };

  apps = listToAttrs (
    map
      (drv: {
        inherit (drv) name;
        value = {
          type = "app";
          program = "${drv}/bin/${drv.name}";
        };
      })
      [
        ciTest
        buildAndCopy
        buildAndUpload
      ]
  );

  # Where no gigabytes have to be fetched for it.
  checks = listToAttrs (
    lib.concatMap (entry: [
      {
        name = "loads-${entry.name}";
        value = tests.loadCheck entry compiled.${entry.variant};
      }
      {
        name = "tests-${entry.name}";
        value = tests.testCheck entry compiled.${entry.variant};
      }
    ]) small
  );

  devShells =
    let
      development = named able (
        variant:
        shells.development [ variant ] (
          tests.bestFor "cpu" (filter (entry: entry.variant == variant.name) testable)
        )
      );
      trials = named testable (entry: shells.trial entry outputs.${entry.variant});
      first = if bestHere == null then null else bestHere;
      groupOf = shell: members: if members == { } then { } else shell // members;
      defaultShell = shells.development (
        if first == null then [ ] else filter (variant: variant.name == first.variant) able
      ) first;
    in
    {
      default = defaultShell;
    }
    // (if development == { } then { } else { devShells = groupOf defaultShell development; })
    // (
      if first == null then
        { }
      else
        {
          test = trials.${first.name};
          testShells = groupOf trials.${first.name} trials;
        }
    );

  formatter = pkgs.nixfmt-tree;
}
