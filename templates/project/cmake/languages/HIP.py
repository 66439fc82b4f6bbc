"""Translate a component's CUDA sources to HIP with Torch's hipify, in the build tree.

Only the given sources and what they include from the project are copied to `<output>/tree` and
translated there. `<output>/units/<source>.hip` includes the translation and names its digest, so
that a build tool sees when it changes; files that stay the same keep their times. Torch is not
imported: its hipify is a handful of files that need nothing else of it.
"""

import argparse
import contextlib
import hashlib
import importlib
import io
import os
import posixpath
import re
import shutil
import sys
import tempfile
import types
from pathlib import Path

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


def load_hipify(folder):
    """Torch's `hipify_python` out of the folder that holds it."""
    for name, path in (("torch", ""), ("torch.utils", ""), ("torch.utils.hipify", folder)):
        module = types.ModuleType(name)
        module.__path__ = [path] if path else []
        sys.modules[name] = module
    return importlib.import_module("torch.utils.hipify.hipify_python")


def closure(project, source, folders):
    """`source` and all project files that it includes, directly or not, relative to `project`."""
    found, waiting = {}, [source]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        text = (project / path).read_text(encoding="utf-8", errors="replace")
        for name in INCLUDE.findall(text):
            for folder in (posixpath.dirname(path), *folders):
                candidate = posixpath.normpath(posixpath.join(folder, name))
                if not candidate.startswith(("..", "/")) and (project / candidate).is_file():
                    waiting.append(candidate)
                    break
    return sorted(found)


def translate(hipify, project, tree, files, folders):
    """Copy `files` to `tree` and translate them; returns source -> translation, both relative."""
    tree = Path(os.path.realpath(tree))
    for path in files:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / path, tree / path)
    staged = [str(tree / path) for path in files]
    results = hipify.hipify(
        project_directory=str(tree),
        output_directory=str(tree),
        includes=[f"{tree}/*"],
        extra_files=staged,
        header_include_dirs=[folder for folder in folders if (tree / folder).is_dir()],
        hipify_extra_files_only=True,
        is_pytorch_extension=True,
        show_progress=False,
    )
    translated = {}
    for path, copy in zip(files, staged):
        result = results.get(copy)
        target = result.hipified_path if result is not None else None
        translated[path] = Path(os.path.relpath(target or copy, tree)).as_posix()
    return translated


def write_changed(path, data):
    """Write `data` unless the file has it already."""
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def synchronise(fresh, tree):
    """Make `tree` equal to `fresh`, touching only what differs."""
    wanted = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    for path in sorted(wanted):
        write_changed(tree / path, (fresh / path).read_bytes())
    for path in tree.rglob("*"):
        if path.is_file() and path.relative_to(tree) not in wanted:
            path.unlink()


def unit_text(output, files, translated, source):
    """A source file that includes the translation of `source`, wherever the project lies."""
    tree, folder = output / "tree", (output / "units" / source).parent
    digest = hashlib.sha256()
    for path in files:
        digest.update((tree / translated[path]).read_bytes())
    target = Path(os.path.relpath(tree / translated[source], folder)).as_posix()
    return f'// {source}, translated: {digest.hexdigest()}\n#include "{target}"\n'


def depfile(units, project, files):
    """Make's way to say that the units depend on all files that were read."""

    def escaped(path):
        return str(path).replace(" ", "\\ ")

    left = " ".join(escaped(unit) for unit in units)
    right = " ".join(escaped(project / path) for path in files)
    return f"{left}: {right}\n"


def main():
    """Translate what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hipify", required=True, help="folder of Torch's hipify")
    parser.add_argument("--project", required=True, type=Path)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("sources", nargs="+")
    args = parser.parse_args()
    tree = args.output / "tree"
    reached = {source: closure(args.project, source, args.include) for source in args.sources}
    files = sorted({path for paths in reached.values() for path in paths})
    with tempfile.TemporaryDirectory() as fresh:
        hipify = load_hipify(args.hipify)
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            translated = translate(hipify, args.project, fresh, files, args.include)
        synchronise(Path(fresh), tree)
    units = [args.output / "units" / f"{source}.hip" for source in args.sources]
    for source, unit in zip(args.sources, units):
        text = unit_text(args.output, reached[source], translated, source)
        write_changed(unit, text.encode())
    write_changed(args.output / "hipify.d", depfile(units, args.project, files).encode())


if __name__ == "__main__":
    main()
