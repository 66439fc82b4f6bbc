# What of a project's folder one variant is built from: an allow-list, so that nothing else can
# change the build or start it again.
#
#   - `build.toml`;
#   - the variant's sources and headers (`src` of the bindings and of its `[kernel.*]` sections);
#   - what those include from the project, found as kbuild/includes.py does, only more generously;
#   - headers below the include folders, for includes that are macros;
#   - the Python package, by extension.
#
# `kbuild check-config` in the sandbox still judges the whole `build.toml`. So the sources and folders of
# other backends are there as empty stubs, and what is missing from the project is missing there, too:
# the build reports it in kbuild's words.
#
# Symbolic links are never followed here, since Nix cannot ask where one leads. A variant that needs one
# is built from the whole folder, without what is hidden or built.
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
    joined
    quoted
    setOf
    strings
    suffixOf
    table
    unique
    ;

  scannedSuffixes = setOf (
    [ "cpp" "cc" "cxx" "c++" "C" "c" "cu" "hip" "mm" "m" "metal" "sycl" ] ++ headerSuffixes
  );
  headerSuffixes = [
    "h" "hh" "hpp" "hxx" "h++" "H" "cuh" "inc" "inl" "ipp" "tpp" "txx" "tcc" "def"
  ];
  isHeader = path: elem (suffixOf path) headerSuffixes;
  # Of the project's own folder, and no part of its sources.
  isAside =
    name:
    hasPrefix "." name
    || elem name [ "build" "result" "node_modules" "tests" "test" "docs" "doc" "benchmarks" ]
    || hasPrefix "result-" name;
  isBytecode = name: name == "__pycache__" || suffixOf name == "pyc";

  # The folder as nested sets that are read, and files that are scanned, at most once.
  folderAt =
    path:
    builtins.mapAttrs (
      name: type:
      { inherit type; }
      // (
        if type == "directory" then
          { entries = folderAt (path + "/${name}"); }
        else if type == "regular" then
          { includes = includesIn (lib.readFile (path + "/${name}")); }
        else
          { }
      )
    ) (builtins.readDir path);
  project = {
    type = "directory";
    entries = folderAt root;
  };

  includesIn =
    text:
    concatMap (found: if lib.isList found then [ (lib.elemAt found 1) ] else [ ]) (
      builtins.split "#[ \t]*(include|include_next|import|embed)[ \t]*[<\"]([^\">\n]+)[\">]" text
    );

  # What is at a path; `symlink` also for what lies behind one.
  at =
    path:
    let
      step =
        node: name:
        if node.type == "directory" then
          node.entries.${name} or { type = "absent"; }
        else if node.type == "symlink" then
          node
        else
          { type = "absent"; };
    in
    if path == "." then project else builtins.foldl' step project (lib.split "/" path);
  isThere = path: elem (at path).type [ "regular" "symlink" ];

  # Files and links below a folder that `keep` wants; `enter` says which folders are looked into.
  walk =
    { keep, enter }:
    let
      below =
        path: node:
        if node.type == "symlink" then
          [ path ]
        else
          concatMap (
            name:
            let
              child = node.entries.${name};
              childPath = joined path name;
            in
            if child.type == "directory" then
              if enter childPath name then below childPath child else [ ]
            else
              lib.optional (keep childPath name child.type) childPath
          ) (lib.attrNames (node.entries or { }));
    in
    path: below path (at path);

  headersBelow = walk {
    # A link without a suffix may be one to a folder of headers.
    keep =
      path: name: type:
      !(hasPrefix "." name)
      && (isHeader path || (type == "symlink" && suffixOf path == "" && !(path == name && isAside name)));
    enter = path: name: !(hasPrefix "." name) && !(isBytecode name) && !(path == name && isAside name);
  };

  frameworkTable =
    let
      present = filter (key: toml ? ${key}) [ "torch" "torch-noarch" "tvm-ffi" ];
    in
    if present == [ ] then { } else table toml.${lib.head present};
  shippedSuffixes = setOf (
    [ "py" "pyi" ] ++ map (text: lib.head (lib.match "[.]*(.*)" text)) (strings (frameworkTable.pyext or null))
  );
  packageBelow =
    folder:
    walk {
      keep = path: name: _: shippedSuffixes ? ${suffixOf path} && suffixOf path != "" && path != "${folder}/_ops.py" && !(isBytecode name);
      enter = _: name: !(hasPrefix "." name) && !(isBytecode name);
    } folder;
  # Where `kbuild check-config` looks for the package, beside where the variant ships it from.
  checkedPackage =
    variant:
    if toml ? tvm-ffi then "tvm-ffi-ext/${baseNameOf variant.packageFolder}" else variant.packageFolder;

  sections =
    map (key: table (toml.${key} or { })) [ "torch" "torch-noarch" "tvm-ffi" ]
    ++ map table (lib.attrValues (table (toml.kernel or { })));
  listed = key: unique (
    filter (path: path != null) (map lib.normalPath (concatMap (section: strings (section.${key} or null)) sections))
  );
  allSources = listed "src";
  allIncludes = listed "include";
  # As in Hugging Face's builder, an include folder of every component.
  usualInclude = lib.optional (elem (at "csrc").type [ "directory" "symlink" ]) "csrc";

  # A variant's sources with all that they include, as { path = true; }.
  reached =
    variant: folders:
    let
      found =
        base: name:
        filter (path: path != null && isThere path) (
          map (folder: lib.normalPath "${folder}/${name}") (unique ([ base ] ++ folders))
        );
      includedBy =
        { key, scan }:
        let
          node = at key;
        in
        if scan && node.type == "regular" then
          map (key: {
            inherit key;
            scan = true;
          }) (concatMap (found (lib.parentOf key)) node.includes)
        else
          [ ];
    in
    map ({ key, ... }: key) (
      builtins.genericClosure {
        startSet = map (key: {
          inherit key;
          scan = scannedSuffixes ? ${suffixOf key};
        }) (filter isThere variant.sources);
        operator = includedBy;
      }
    );

  filesOf =
    variant:
    let
      folders = unique (variant.includes ++ lib.optional (!variant.isNoarch && usualInclude != [ ]) "csrc");
      sources = reached variant folders;
      own = setOf sources;
      others = setOf allSources;
      headers = filter (path: own ? ${path} || !(others ? ${path})) (concatMap headersBelow folders);
      packages = concatMap packageBelow (unique [ variant.packageFolder (checkedPackage variant) ]);
    in
    builtins.attrNames (setOf ([ "build.toml" ] ++ sources ++ headers ++ packages));

  name =
    let
      given = (table (toml.general or { })).name or null;
    in
    if lib.isString given && lib.match "[a-z][-a-z0-9]{0,95}" given != null then
      "${given}-source"
    else
      "kernel-source";

  copied =
    keep:
    builtins.path {
      inherit name;
      path = root;
      filter =
        path: type:
        keep (lib.substring (lib.stringLength (toString root) + 1) (-1) path) type;
    };

  only =
    files:
    let
      folders = setOf (concatMap lib.ancestors files);
      wanted = setOf files;
    in
    copied (path: type: if type == "directory" then folders ? ${path} else wanted ? ${path});

  everything = copied (
    path: _:
    let
      part = baseNameOf path;
    in
    !(hasPrefix "." part) && !(isBytecode part) && !(elem path [ "build" "result" "node_modules" ] || hasPrefix "result-" path)
  );

  sourceOf =
    variant:
    let
      files = filesOf variant;
      isLinked = builtins.any (path: (at path).type == "symlink") files;
      here = setOf files;
      made = setOf ([ "." ] ++ concatMap lib.ancestors files);
      stubs = {
        files = lib.optionalList (!isLinked) (
          filter (path: !(here ? ${path}) && isThere path) allSources
        );
        folders = lib.optionalList (!isLinked) (
          filter (path: !(made ? ${path}) && elem (at path).type [ "directory" "symlink" ]) (
            unique (allIncludes ++ usualInclude ++ allSources)
          )
        );
      };
      tree = if isLinked then everything else only files;
    in
    {
      inherit
        files
        isLinked
        stubs
        tree
        ;
      # Shell text that makes the project in the folder `target`, which does not exist yet.
      unpack =
        target:
        lib.concatStringsSep "\n" (
          [
            "cp -R ${tree} ${quoted target}"
            "chmod -R u+w ${quoted target}"
          ]
          ++ map (path: "mkdir -p ${quoted "${target}/${path}"}") (
            unique (stubs.folders ++ map lib.parentOf stubs.files)
          )
          ++ map (path: ": > ${quoted "${target}/${path}"}") stubs.files
        )
        + "\n";
    };

  # Variants that are built from the same files share one source.
  key =
    variant:
    builtins.toJSON {
      inherit (variant)
        sources
        includes
        packageFolder
        isNoarch
        ;
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
  missing = filter (path: (at path).type == "absent") allSources;

  # What lies in the project's folder under one of these names, e.g. `tests`, `CARD.md`.
  parts =
    names:
    copied (
      path: _:
      elem (lib.head (lib.split "/" path)) names && !(isBytecode (baseNameOf path)) && !(hasPrefix "." (baseNameOf path))
    );
}
