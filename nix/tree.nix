# A project's folder as Nix may look at it: what is at a path, what lies below a folder, what a
# source includes. Files are read at most once, and only when something asks for their includes.
#
# Symbolic links are never followed: Nix cannot ask where one leads, and reading one that leads
# nowhere ends the evaluation. A path behind a link is a `symlink`, too.
{ lib }:
# A path, or a string in the store.
root:
let
  inherit (lib) concatMap elem filter joined unique;

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

  # What comes after `#include`, also in comments: too many do no harm.
  includesIn =
    text:
    concatMap (found: if lib.isList found then [ (lib.elemAt found 1) ] else [ ]) (
      builtins.split "#[ \t]*(include|include_next|import|embed)[ \t]*[<\"]([^\">\n]+)[\">]" text
    );

  step =
    node: name:
    if node.type == "directory" then
      node.entries.${name} or absent
    else if node.type == "symlink" then
      node
    else
      absent;
  absent.type = "absent";
in
rec {
  # The node at a normal path: `type` is as in `readDir`, or `absent`.
  at =
    path: if path == "." then project else builtins.foldl' step project (lib.split "/" path);

  typeOf = path: (at path).type;
  isFile = path: elem (typeOf path) [ "regular" "symlink" ];
  isFolder = path: elem (typeOf path) [ "directory" "symlink" ];

  # Files and links below a folder that `keep` wants; `enter` says which folders are looked into.
  # Both get a path and its last part, `keep` also the type.
  walk =
    { keep, enter }:
    let
      below =
        path: node:
        concatMap (
          name:
          let
            child = node.entries.${name};
            inside = joined path name;
          in
          if child.type != "directory" then
            lib.optional (keep inside name child.type) inside
          else if enter inside name then
            below inside child
          else
            [ ]
        ) (lib.attrNames node.entries);
    in
    folder:
    let
      node = at folder;
    in
    if node.type == "symlink" then
      [ folder ]
    else if node.type == "directory" then
      below folder node
    else
      [ ];

  # Sources and all files of the project that they include, directly or not.
  #
  # As kbuild/sources/includes.py, but an include means every file that it could mean: in the folder of the
  # file that has it, and in `folders`. `isText` says which sources can be read.
  reached =
    { isText, folders }:
    let
      meant =
        base: name:
        filter (path: path != null && isFile path) (
          map (folder: lib.normalPath "${folder}/${name}") (unique ([ base ] ++ folders))
        );
      included =
        { key, readable }:
        if readable && typeOf key == "regular" then
          map (path: {
            key = path;
            readable = true;
          }) (concatMap (meant (lib.parentOf key)) (at key).includes)
        else
          [ ];
    in
    sources:
    map (item: item.key) (
      builtins.genericClosure {
        startSet = map (path: {
          key = path;
          readable = isText path;
        }) (filter isFile sources);
        operator = included;
      }
    );
}
