# The variants of a project and the environments that it is tested in.
#
# A twin of kbuild/plan/selection.py, so that names are known without building anything; both read
# kbuild/project/matrix/versions.toml, and tests/integration/test_nix_variants.py compares the two. What
# `kbuild check-config` refuses is not judged here: kbuild does so when a variant is built.
{
  lib,
  versions ? lib.readToml ../kbuild/project/matrix/versions.toml,
}:
let
  inherit (lib)
    attrNames
    compact
    concatMap
    filter
    isAttrs
    isOlder
    strings
    table
    version
    ;
  matrix = import ./matrix.nix { inherit lib versions; };

  computeTags.cuda = "cu";
  noarchTags.cann = "npu";
  packageRoots = {
    torch = "torch-ext";
    torch-stable-abi = "torch-ext";
    torch-noarch = "torch-ext";
    tvm-ffi = "tvm-ffi-ext";
  };

  archName =
    { framework, release }:
    entry:
    let
      isLinux = lib.match ".*-linux" entry.system != null;
      abi = if framework == "torch" && isLinux then "-cxx11" else "";
      tag = computeTags.${entry.backend} or entry.backend;
      compute = if entry.toolkit == null then tag else tag + compact (version entry.toolkit);
    in
    "${framework}${compact release}${abi}-${compute}-${entry.system}";

  # The stable-ABI floor for a backend; null for the full ABI.
  floorOf =
    toml: backend:
    let
      given = (table (toml.torch or { })).stable-abi or null;
    in
    version (if isAttrs given then given.${backend} or null else given);

  # Framework and release of an environment's variant; null when the project has none for it.
  abiOf =
    toml: entry:
    let
      floor = floorOf toml entry.backend;
      torch = version entry.torch;
    in
    if toml ? tvm-ffi then
      if entry.tvmFfi == null then
        null
      else
        {
          framework = "tvm-ffi";
          release = version entry.tvmFfi;
        }
    else if floor == null then
      {
        framework = "torch";
        release = torch;
      }
    else if isOlder torch floor then
      null
    else
      {
        framework = "torch-stable-abi";
        release = floor;
      };

  # A section in a Python DSL may name several backends.
  backendsIn =
    section:
    let
      named = section.backend or null;
    in
    if lib.isString named then [ named ] else strings named;
  isForeign = section: lib.isString (section.language or null) && section.language != "c++";

  # `[kernel.*]` sections of a backend by name; a file without any is Python only.
  sectionsOf =
    toml: backend:
    let
      kernels = table (toml.kernel or { });
    in
    map (name: kernels.${name}) (
      filter (name: lib.elem backend (backendsIn (table kernels.${name}))) (attrNames kernels)
    );

  # Sections that are part of a variant: `cuda-minver` leaves one out below a toolkit.
  appliedTo =
    entry: section:
    let
      oldest = version (section."${entry.backend}-minver" or null);
    in
    entry.toolkit == null || oldest == null || !(isOlder (version entry.toolkit) oldest);

  pythonName =
    toml:
    let
      name = (table (toml.general or { })).name or "";
    in
    builtins.replaceStrings [ "-" ] [ "_" ] (if lib.isString name then name else "");

  paths =
    key: sections:
    lib.unique (
      filter (path: path != null) (
        map lib.normalPath (concatMap (section: strings (section.${key} or null)) sections)
      )
    );

  noarch = toml: backend: {
    name = "torch-${noarchTags.${backend} or backend}";
    framework = "torch-noarch";
    inherit backend;
    release = null;
    torch = null;
    toolkit = null;
    system = null;
    isNoarch = true;
    isDefault = true;
    languages = [ ];
    sources = [ ];
    includes = [ ];
    packageFolder = "${packageRoots.torch-noarch}/${pythonName toml}";
  };

  compiled =
    toml: entry: abi:
    let
      binding = table (toml.${if toml ? tvm-ffi then "tvm-ffi" else "torch"} or { });
      sections = [ binding ] ++ filter (appliedTo entry) (sectionsOf toml entry.backend);
    in
    {
      name = archName abi entry;
      inherit (abi) framework;
      inherit (entry) backend torch toolkit system isDefault;
      release = lib.versionText abi.release;
      isNoarch = false;
      languages = lib.unique (map (section: section.language) (filter isForeign sections));
      sources = paths "src" sections;
      includes = paths "include" sections;
      packageFolder = "${packageRoots.${abi.framework}}/${pythonName toml}";
    };

  ofBackend =
    toml: entries: backend:
    if sectionsOf toml backend == [ ] then
      [ (noarch toml backend) ]
    else
      concatMap (
        entry:
        let
          abi = abiOf toml entry;
        in
        if abi == null then [ ] else [ (compiled toml entry abi) ]
      ) (filter (entry: entry.backend == backend) entries);

  # One name from several releases (stable ABI, TVM-FFI) is built with the newest of them.
  newest =
    same:
    let
      newer =
        one: other:
        one
        // {
          inherit (if isOlder (version one.torch) (version other.torch) then other else one) torch;
          isDefault = one.isDefault || other.isDefault;
        };
    in
    builtins.foldl' newer (builtins.head same) (builtins.tail same);

  backendsOf =
    toml:
    lib.unique (
      filter (name: lib.match "[a-z]+" name != null) (
        strings ((table (toml.general or { })).backends or null)
      )
    );

  # Kernels without compiled code are tested in every environment of their backends, too.
  environment =
    toml: entry:
    let
      abi = abiOf toml entry;
      isCompiled = sectionsOf toml entry.backend != [ ];
    in
    {
      inherit (entry) backend torch toolkit system isDefault;
      name = archName {
        framework = "torch";
        release = version entry.torch;
      } entry;
      # The variant that is loaded there; null where the project has none.
      variant =
        if !isCompiled then
          (noarch toml entry.backend).name
        else if abi == null then
          null
        else
          archName abi entry;
    };
in
{
  # As `kbuild list-variants --all` lists them, in its order.
  variants =
    { toml, ... }@choice:
    let
      all = concatMap (ofBackend toml (matrix choice)) (backendsOf toml);
      grouped = builtins.groupBy (variant: variant.name) all;
    in
    map (name: newest grouped.${name}) (lib.unique (map (variant: variant.name) all));

  # Where the kernel can be tested, as `kbuild list-variants --arch --all` lists it.
  environments = { toml, ... }@choice: map (environment toml) (matrix choice);
}
