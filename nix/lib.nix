# What the other files need beside `builtins`; no package set is involved.
rec {
  inherit (builtins)
    attrNames
    attrValues
    concatLists
    concatMap
    concatStringsSep
    elem
    elemAt
    filter
    genList
    head
    isAttrs
    isList
    isString
    length
    listToAttrs
    map
    match
    readFile
    stringLength
    substring
    tail
    ;

  optional = condition: value: if condition then [ value ] else [ ];

  optionalList = condition: list: if condition then list else [ ];

  # [ string ] -> { string = true; }, for look-ups.
  setOf =
    names:
    listToAttrs (
      map (name: {
        inherit name;
        value = true;
      }) names
    );

  # The first of each, in order.
  unique =
    names:
    (builtins.foldl'
      (
        seen: name:
        if seen.set ? ${name} then
          seen
        else
          {
            set = seen.set // {
              ${name} = true;
            };
            list = seen.list ++ [ name ];
          }
      )
      {
        set = { };
        list = [ ];
      }
      names
    ).list;

  # Read at most once for a value that may be of any type: what is not a list counts as empty.
  strings = value: if isList value then filter isString value else [ ];
  table = value: if isAttrs value then value else { };

  split = separator: text: filter isString (builtins.split separator text);

  hasPrefix = prefix: text: substring 0 (stringLength prefix) text == prefix;

  # What follows the last dot of a path's last part, "" when there is none (as in Python's pathlib).
  suffixOf =
    path:
    let
      found = match "(.*/)?[^/]+\\.([^./]+)" path;
    in
    if found == null then "" else elemAt found 1;

  # "a/./b/../c" -> "a/c", "." for the folder itself, null for what leads out of it.
  normalPath =
    path:
    let
      parts = filter (part: part != "" && part != ".") (split "/" path);
      step =
        done: part:
        if done == null then
          null
        else if part != ".." then
          done ++ [ part ]
        else if done == [ ] then
          null
        else
          genList (elemAt done) (length done - 1);
      normal = builtins.foldl' step [ ] parts;
    in
    if normal == null || hasPrefix "/" path then
      null
    else if normal == [ ] then
      "."
    else
      concatStringsSep "/" normal;

  parentOf =
    path:
    let
      found = match "(.*)/[^/]+" path;
    in
    if found == null then "." else head found;

  joined = folder: name: if folder == "." then name else "${folder}/${name}";

  # "a/b/c" -> [ "a" "a/b" "a/b/c" ]
  ancestors =
    path:
    let
      parts = split "/" path;
    in
    genList (
      count: concatStringsSep "/" (genList (elemAt parts) (count + 1))
    ) (length parts);

  # What follows the first `marker`.
  after =
    marker: text:
    let
      parts = split (escaped marker) text;
    in
    assert length parts > 1;
    concatStringsSep marker (tail parts);
  escaped =
    let
      special = builtins.filter (part: part != "") (split "" "\\.+*?()[]{}^$|");
    in
    builtins.replaceStrings special (map (character: "\\${character}") special);

  quoted = text: "'${builtins.replaceStrings [ "'" ] [ "'\\''" ] text}'";

  # Dotted versions as lists of integers; null for anything else.
  version =
    text:
    if isString text && match "[0-9]+(\\.[0-9]+)*" text != null then
      map toInt (split "\\." text)
    else
      null;
  toInt = digits: builtins.fromJSON (head (match "0*([0-9]+)" digits));
  versionText = parts: concatStringsSep "." (map toString parts);
  # `major` and `minor` without a dot.
  compact =
    parts:
    let
      minor = if length parts > 1 then elemAt parts 1 else 0;
    in
    "${toString (head parts)}${toString minor}";
  # 13 is as old as 13.0.
  comparable =
    parts:
    let
      last = length parts - 1;
    in
    if parts != [ ] && elemAt parts last == 0 then
      comparable (genList (elemAt parts) last)
    else
      parts;
  isOlder = one: other: comparable one < comparable other;
  # Bounds are inclusive; one that is null does not bound.
  isWithin =
    low: high: parts:
    (low == null || !(isOlder parts low)) && (high == null || !(isOlder high parts));

  readToml =
    file:
    builtins.addErrorContext
      "while reading ${toString file}; `kbuild check-config` says more about a build.toml"
      (builtins.fromTOML (readFile file));

  # The `build.toml` of a project's folder.
  readProject =
    root:
    if (builtins.readDir root) ? "build.toml" then
      readToml (root + "/build.toml")
    else
      throw (
        "there is no build.toml in ${toString root}: `path` is the folder of a kernel project, "
        + "and in git Nix sees only files that git knows (`git add build.toml`)"
      );
}
