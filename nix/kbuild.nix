# kbuild itself, from this source tree and pinned wheels of what it needs.
{ toolchain, source }:
let
  inherit (builtins) attrNames baseNameOf concatMap concatStringsSep fromTOML readFile toFile;
  # What kbuild runs from; a change of anything else in the repository builds nothing again.
  code = builtins.path {
    name = "kbuild-code";
    path = source + "/kbuild";
    filter = path: _: baseNameOf path != "__pycache__";
  };
  templates = builtins.path {
    name = "kbuild-templates";
    path = source + "/templates";
  };
  # By these, kbuild finds its own plug-ins as well.
  groups = (fromTOML (readFile (source + "/pyproject.toml"))).project.entry-points;
  lines = group: map (name: "${name} = ${groups.${group}.${name}}") (attrNames groups.${group});
  entryPoints = toFile "entry_points.txt" (
    concatStringsSep "\n" (concatMap (group: [ "[${group}]" ] ++ lines group) (attrNames groups)) + "\n"
  );
  needs = toolchain.environment "kbuild-needs" toolchain.pythonPins.kbuild;
in
toolchain.build {
  name = "kbuild";
  script = ''
    site=$out/${toolchain.sitePackages}
    ${toolchain.pkgs.python3}/bin/python3 -m venv --without-pip $out
    cp -r ${code} $site/kbuild
    chmod -R u+w $site
    mkdir $site/kbuild-0.dist-info
    cp ${entryPoints} $site/kbuild-0.dist-info/entry_points.txt
    printf 'Metadata-Version: 2.1\nName: kbuild\nVersion: 0\n' > $site/kbuild-0.dist-info/METADATA
    ln -s ${needs}/bin/ninja $out/bin/ninja
    echo ${needs}/${toolchain.sitePackages} > $site/kbuild-needs.pth
    $out/bin/python3 -m compileall -q --invalidation-mode unchecked-hash $site
    cp -r ${templates} $site/kbuild/templates
    cat > $out/bin/kbuild <<END
    #!${toolchain.runtimeShell}
    exec $out/bin/python3 -P -m kbuild "\$@"
    END
    chmod +x $out/bin/kbuild
    $out/bin/kbuild --help > /dev/null
    $out/bin/kbuild migrate --help > /dev/null
  '';
  meta.mainProgram = "kbuild";
}
