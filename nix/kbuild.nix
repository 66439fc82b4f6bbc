# kbuild itself, from this source tree and pinned wheels of what it needs.
{ toolchain, source }:
let
  inherit (builtins) baseNameOf;
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
  needs = toolchain.environment "kbuild-needs" toolchain.pythonPins.kbuild;
in
toolchain.build {
  name = "kbuild";
  script = ''
    site=$out/${toolchain.sitePackages}
    ${toolchain.pkgs.python3}/bin/python3 -m venv --without-pip $out
    cp -r ${code} $site/kbuild
    chmod -R u+w $site
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
  '';
  meta.mainProgram = "kbuild";
}
