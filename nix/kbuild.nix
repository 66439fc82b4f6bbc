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
    mkdir -p $out/bin $out/site
    cp -r ${code} $out/site/kbuild
    chmod -R u+w $out/site
    python3 -S -m compileall -q --invalidation-mode unchecked-hash $out/site
    cp -r ${templates} $out/site/kbuild/templates
    cat > $out/bin/kbuild <<'END'
    #!${toolchain.runtimeShell}
    here=''${BASH_SOURCE[0]%/*}
    export PYTHONPATH=$here/../site:${needs}''${PYTHONPATH:+:$PYTHONPATH} PYTHONSAFEPATH=1
    exec ${toolchain.python}/bin/python3 -m kbuild "$@"
    END
    chmod +x $out/bin/kbuild
    $out/bin/kbuild --help > /dev/null
  '';
  meta.mainProgram = "kbuild";
}
