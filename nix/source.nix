# What of a project's folder one variant is built from: an allow-list, so that nothing else can
# change the build or start it again.
#
#   - `build.toml`, and `kbuild.toml` where there is one;
#   - the variant's sources and headers (`src` of the bindings and of its `[kernel.*]` sections);
#   - what those include from the project;
#   - headers below the include folders, for includes that are macros;
#   - the Python package, by extension;
#   - the tuned tables and the captured functions, if it has kernels in Python DSLs.
#
# `kbuild check-config` in the sandbox still judges the whole `build.toml`. So the sources and
# folders of other backends are there as empty stubs, and what is missing from the project is
# missing there, too: the build reports it in kbuild's words.
#
# A variant that needs a symbolic link is built from the whole folder, without what is hidden or
# built.
{ lib }:
{
  # The folder of `build.toml`: a path, or a string in the store.
  root,
  toml,
  # From variants.nix.
  variants,
}:
let
  inherit (lib)
    concatMap
    elem
    filter
    hasPrefix
    quoted
    setOf
    strings
    suffixOf
    table
    unique
    ;
  folder = import ./tree.nix { inherit lib; } root;

  headerSuffixes = setOf [
    "h" "hh" "hpp" "hxx" "h++" "H" "cuh" "inc" "inl" "ipp" "tpp" "txx" "tcc" "def"
  ];
  sourceSuffixes = setOf [
    "cpp" "cc" "cxx" "c++" "C" "c" "cu" "hip" "mm" "m" "metal" "sycl"
  ];
  isHeader = path: headerSuffixes ? ${suffixOf path};
  isText = path: isHeader path || sourceSuffixes ? ${suffixOf path};

  isHidden = hasPrefix ".";
  isBytecode = name: name == "__pycache__" || suffixOf name == "pyc";
  # In the project's own folder, what tools wrote.
  isMade = name: elem name [ "build" "result" "node_modules" ] || hasPrefix "result-" name;
  # In the project's own folder, what holds no headers of the kernel.
  isTopAside =
    path: name:
    path == name && (isMade name || elem name [ "tests" "test" "docs" "doc" "benchmarks" ]);

  sections =
    map (key: table (toml.${key} or { })) frameworks
    ++ map table (lib.attrValues (table (toml.kernel or { })));
  frameworks = [ "torch" "torch-noarch" "tvm-ffi" ];
  listed =
    key:
    unique (
      filter (path: path != null) (
        map lib.normalPath (concatMap (section: strings (section.${key} or null)) sections)
      )
    );
  allSources = concatMap expanded (listed "src");

  # The files that a pattern means, as kbuild/project/config/document.py; another path is itself.
  expanded =
    path:
    let
      parts = builtins.split "([*][*]/|[*])" path;
      piece =
        part:
        if lib.isString part then
          lib.escaped part
        else if lib.head part == "**/" then
          ".*"
        else
          "[^/]*";
      pattern = lib.concatStringsSep "" (map piece parts);
      found = folder.walk {
        keep = inside: name: _: !(isHidden name || isBytecode name) && lib.match pattern inside != null;
        enter = _: name: !(isHidden name || isBytecode name || name == "build");
      } (lib.parentOf "${lib.head parts}_");
    in
    if lib.length parts == 1 || found == [ ] then [ path ] else found;

  # Hugging Face's builder has it as an include folder of every component, and so has kbuild.
  usualInclude = lib.optional (folder.isFolder "csrc") "csrc";

  headersBelow = folder.walk {
    # A link without a suffix may be one to a folder of headers.
    keep =
      path: name: type:
      !(isHidden name)
      && (isHeader path || (type == "symlink" && suffixOf path == "" && !(isTopAside path name)));
    enter = path: name: !(isHidden name || isBytecode name || isTopAside path name);
  };

  shippedSuffixes =
    let
      present = filter (key: toml ? ${key}) frameworks;
      framework = if present == [ ] then { } else table toml.${lib.head present};
      bare = text: lib.head (lib.match "[.]*(.*)" text);
    in
    removeAttrs (setOf ([ "py" "pyi" ] ++ map bare (strings (framework.pyext or null)))) [ "" ];
  packageBelow =
    package:
    folder.walk {
      # kbuild generates `_ops.py`; what another tool left there is not shipped.
      keep =
        path: name: _:
        shippedSuffixes ? ${suffixOf path} && path != "${package}/_ops.py" && !(isBytecode name);
      enter = _: name: !(isHidden name || isBytecode name);
    } package;
  # Tuned tables of kernels in Python DSLs, and what `kbuild capture` has written.
  tables =
    let
      below =
        suffixes: top:
        if folder.isFolder top then
          folder.walk {
            keep = _: name: _: elem (suffixOf name) suffixes;
            enter = _: name: !(isHidden name);
          } top
        else
          [ ];
    in
    below [ "json" ] "tuned" ++ below [ "json" "py" ] "captured";
  # Where the variant ships its package from, and where `kbuild check-config` looks for one.
  packageFolders =
    variant:
    unique (
      [ variant.packageFolder ]
      ++ lib.optional (toml ? tvm-ffi) "tvm-ffi-ext/${baseNameOf variant.packageFolder}"
    );

  filesOf =
    variant:
    let
      folders = unique (variant.includes ++ (if variant.isNoarch then [ ] else usualInclude));
      sources = folder.reached { inherit isText folders; } (concatMap expanded variant.sources);
      own = setOf sources;
      others = setOf allSources;
      isOwn = path: own ? ${path} || !(others ? ${path});
      headers = filter isOwn (concatMap headersBelow folders);
      packages = concatMap packageBelow (packageFolders variant);
    in
    lib.attrNames (
      setOf (
        [ "build.toml" ]
        ++ lib.optional (folder.isFile "kbuild.toml") "kbuild.toml"
        ++ sources
        ++ headers
        ++ packages
        ++ (if variant.languages == [ ] then [ ] else tables)
      )
    );

  name =
    let
      given = (table (toml.general or { })).name or null;
      isName = lib.isString given && lib.match "[a-z][-a-z0-9]{0,95}" given != null;
    in
    if isName then "${given}-source" else "kernel-source";

  # `keep` gets paths relative to the project.
  copied =
    keep:
    let
      above = builtins.unsafeDiscardStringContext "${toString root}/";
    in
    builtins.path {
      inherit name;
      path = root;
      # The path is that of the store on this machine, which `--store` puts below another folder.
      filter = path: type: type != "unknown" && keep (lib.after above path) type;
    };

  only =
    files:
    let
      folders = setOf (concatMap lib.ancestors files);
      wanted = setOf files;
    in
    copied (path: type: if type == "directory" then folders ? ${path} else wanted ? ${path});

  everything = copied (
    path: _: !(isHidden (baseNameOf path) || isBytecode (baseNameOf path) || isMade path)
  );

  # A link among other backends' sources may be one to a folder, and stands for a file here.
  stubsFor =
    files:
    let
      made = setOf ([ "." ] ++ concatMap lib.ancestors files);
      absent = filter (path: !(made ? ${path}));
      empty = filter folder.isFile (absent allSources);
      folders = absent (unique (listed "include" ++ usualInclude ++ allSources));
    in
    {
      files = empty;
      folders = filter (path: folder.isFolder path && !(elem path empty)) folders;
    };

  sourceOf =
    variant:
    let
      files = filesOf variant;
      isLinked = builtins.any (path: folder.typeOf path == "symlink") files;
      none = {
        files = [ ];
        folders = [ ];
      };
    in
    rec {
      inherit files isLinked;
      # A store path.
      tree = if isLinked then everything else only files;
      stubs = if isLinked then none else stubsFor files;
      # Shell text that makes the project in the folder `target`, which does not exist yet.
      unpack =
        target:
        let
          inside = path: quoted "${target}/${path}";
          folders = unique (stubs.folders ++ map lib.parentOf stubs.files);
        in
        lib.concatStringsSep "\n" (
          [ "cp -R ${tree} ${quoted target}" ]
          ++ [ "chmod -R u+w ${quoted target}" ]
          ++ map (path: "mkdir -p ${inside path}") folders
          ++ map (path: ": > ${inside path}") stubs.files
          ++ [ "" ]
        );
    };

  # Variants that are built from the same files share one source.
  key =
    variant:
    builtins.toJSON {
      inherit (variant) sources includes packageFolder isNoarch;
    };
  shared = builtins.mapAttrs (_: same: sourceOf (lib.head same)) (builtins.groupBy key variants);
in
{
  # By a variant's name.
  variants = lib.listToAttrs (
    map (variant: {
      inherit (variant) name;
      value = shared.${key variant};
    }) variants
  );

  # Files of `build.toml` that are not there: in git, Nix sees only files that git knows.
  missing = filter (path: folder.typeOf path == "absent") allSources;

  # What lies in the project's folder under one of these names, e.g. `tests`, `CARD.md`.
  parts =
    names:
    copied (
      path: _:
      elem (lib.head (lib.split "/" path)) names
      && !(isBytecode (baseNameOf path) || isHidden (baseNameOf path))
    );
}
