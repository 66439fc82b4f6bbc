# Where a kernel's tests run: environments with Torch, the tests as programs, and as derivations.
{
  lib,
  toolchain,
  kbuild,
  # `{ name, pythonName, repoId, tests, environments, checkInputs }`; `tests` is a folder.
  project,
}:
let
  inherit (lib) concatStringsSep filter head;
  inherit (toolchain) build pythonPins runtimeShell;

  flavours = {
    cpu = pythonPins.test.cpu or { };
    cuda = pythonPins.test.cuda or { };
  };

  # CUDA's release of a pinned environment: that of its runtime's wheel.
  cudaOf =
    release:
    let
      runtimes = filter (found: found != null) (
        map (wheel: builtins.match "nvidia_cuda_runtime-([0-9]+[.][0-9]+).*" wheel.filename) flavours.cuda.${release}.large
      );
    in
    if runtimes == [ ] then null else head (head runtimes);

  # Which pinned environment a kernel can be loaded in; null where there is none. A Torch with CUDA
  # runs kernels for the processor as well, but costs gigabytes.
  flavourOf =
    entry:
    if entry.system != toolchain.system then
      null
    else if entry.backend == "cpu" && flavours.cpu ? ${entry.torch} then
      "cpu"
    else if
      flavours.cuda ? ${entry.torch}
      && (entry.backend == "cpu" || (entry.backend == "cuda" && cudaOf entry.torch == entry.toolkit))
    then
      "cuda"
    else
      null;

  environmentOf =
    entry:
    let
      flavour = flavourOf entry;
    in
    toolchain.environment "torch-${entry.torch}-${flavour}-tests" flavours.${flavour}.${entry.torch};

  # Tests as in `kbuild test`; `target` is the variant's folder. The kernel can be imported by its own
  # name as well.
  runner = environment: target: ''
    package=$(mktemp -d)
    trap 'rm -rf "$package"' EXIT
    ln -s ${target} "$package/${project.pythonName}"
    export LOCAL_KERNELS=${lib.quoted "${project.repoId}=${target}"} PYTHONDONTWRITEBYTECODE=1
    export PYTHONPATH=$package${concatStringsSep "" (map (folder: ":${folder}") project.checkInputs)}
    status=0
    ${environment}/bin/python3 -P -m pytest ${project.tests}/tests -m kernels_ci \
      -p no:cacheprovider --rootdir=${project.tests} "$@" || status=$?
    if [ $status = 5 ]; then
      echo "no test is marked kernels_ci: nothing was tested" >&2
      status=0
    fi
  '';

  # `nix run .#ciTests.<environment>`
  ciTest =
    entry: target:
    build {
      name = "ci-test";
      preferLocalBuild = true;
      script = ''
        mkdir -p $out/bin
        cat > $out/bin/ci-test <<'END'
        #!${runtimeShell}
        set -u
        echo "testing ${entry.variant} in ${entry.name}" >&2
        ${runner (environmentOf entry) target}
        exit $status
        END
        chmod +x $out/bin/ci-test
      '';
      meta.mainProgram = "ci-test";
    };

  # The same inside the sandbox, for `nix flake check`.
  testCheck =
    entry: target:
    build {
      name = "${project.name}-tests-${entry.name}";
      script = ''
        export HOME=$PWD
        set --
        ${runner (environmentOf entry) target}
        if [ $status != 0 ]; then exit $status; fi
        touch $out
      '';
    };

  # The variant loads as its users load it: with the `kernels` client, in a fresh process.
  loadCheck =
    entry: target:
    build {
      name = "${project.name}-loads-${entry.name}";
      script = ''
        export HOME=$PWD KBUILD_CACHE_DIR=$PWD/cache
        mkdir variants
        ln -s ${target} variants/${entry.variant}
        python=${environmentOf entry}/bin/python3
        ${kbuild}/bin/kbuild check variants/${entry.variant} --only load --python $python
        $python -c '
        import pathlib, sys, kernels
        kernels.get_local_kernel(pathlib.Path(sys.argv[1]))
        ' variants/${entry.variant}
        touch $out
      '';
    };

  # Newer Torch releases first; an environment that is small before one that is not.
  rank =
    one: other:
    let
      small = entry: flavourOf entry == "cpu";
    in
    if small one != small other then
      small one
    else
      builtins.compareVersions one.torch other.torch > 0;
  bestFor =
    backend: entries:
    let
      fitting = builtins.sort rank (filter (entry: entry.backend == backend) entries);
    in
    if fitting == [ ] then null else head fitting;

  # `nix run .#ci-test`: which backend is the best one can only be asked of the machine that runs the
  # tests. So this names the GPU's test by its derivation, and it is built where there is a GPU.
  ciTestHere =
    entries: testOf:
    let
      cuda = bestFor "cuda" entries;
      cpu = bestFor "cpu" entries;
      later = entry: builtins.unsafeDiscardOutputDependency (testOf entry).drvPath;
    in
    build {
      name = "ci-test";
      preferLocalBuild = true;
      script = ''
        mkdir -p $out/bin
        cat > $out/bin/ci-test <<'END'
        #!${runtimeShell}
        ${concatStringsSep "" (
          lib.optional (cuda != null) ''
            if [ -e /dev/nvidia0 ] || nvidia-smi > /dev/null 2>&1; then
              test=$(nix-store --realise ${later cuda}) || exit
              exec "$test/bin/ci-test" "$@"
            fi
          ''
        )}
        ${
          if cpu != null then
            ''exec ${testOf cpu}/bin/ci-test "$@"''
          else
            ''
              echo "no variant of ${project.name} can be tested on this machine" >&2
              exit 1
            ''
        }
        END
        chmod +x $out/bin/ci-test
      '';
      meta.mainProgram = "ci-test";
    };
in
{
  inherit
    ciTest
    ciTestHere
    environmentOf
    flavourOf
    loadCheck
    testCheck
    bestFor
    ;
}
