"""`kbuild capture --package`: a Python-only project becomes one whose launches are compiled."""

from __future__ import annotations

from argparse import Namespace

from kbuild.system.errors import UsageError
from kbuild.system.services import Services


def package_captured(args: Namespace, ctx: Services) -> int:
    """Rewrite the build.toml of a Python-only project."""
    from kbuild.plan.project import BUILD_FILE, open_project
    from kbuild.system.files import replace_atomically

    project = open_project(ctx.folder(args.kernel_dir))
    path = project.root / BUILD_FILE
    text = path.read_text("utf-8")
    replace_atomically(path, _captured_build_file(text, project.python_name).encode())
    try:
        open_project(project.root)
    except BaseException:
        replace_atomically(path, text.encode())
        raise
    if args.json:
        ctx.ui.data_json({"file": BUILD_FILE})
    ctx.ui.say(f"{BUILD_FILE} compiles the launches of torch-ext/{project.python_name}")
    ctx.ui.say("next: `kbuild capture --record -- COMMAND`, then `kbuild build`")
    return 0


def _captured_build_file(text: str, package: str) -> str:
    """A build.toml whose Python package has its launches compiled.

    Raises:
        UsageError: it is not that of a Python-only project for backends of the language.
    """
    import tomlkit

    from kbuild.ops.language import LANGUAGES

    language = next(one for one in LANGUAGES.load() if one.launch_runtime)
    document = tomlkit.parse(text)
    exporter, data = language.exporter(), document.unwrap()
    backends = [
        name
        for name in data.get("general", {}).get("backends", ())
        if name in language.init_backends
    ]
    if "torch-noarch" not in document or not backends:
        known = " or ".join(language.init_backends)
        message = f"--package takes a project with `[torch-noarch]` for {known}"
        hint = "write a `[kernel.<name>]` section with `capture` yourself"
        raise UsageError(message, hint=hint)
    del document["torch-noarch"]
    document["general"]["backends"] = backends
    document.add("torch", tomlkit.table())
    section = {
        "backend": backends,
        "language": language.name,
        "toolchain": exporter.pin if exporter else "",
        "src": [f"torch-ext/{package}/**/*.py"],
        "capture": [{"launches": [package, f"{package}.*"]}],
    }
    document.add("kernel", tomlkit.item({package: section}))
    return tomlkit.dumps(document)
