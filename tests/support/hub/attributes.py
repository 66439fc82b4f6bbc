"""Which files are large: `.gitattributes`."""

from __future__ import annotations

import re
from collections.abc import Iterable

LARGE = "filter=lfs diff=lfs merge=lfs -text"
# What the Hub puts into a new repository (assumed to be the same for kernels as for models).
_ENDINGS = (
    *("7z", "arrow", "bin", "bz2", "ckpt", "ftz", "gz", "h5", "joblib", "mlmodel", "model"),
    *("msgpack", "npy", "npz", "onnx", "ot", "parquet", "pb", "pickle", "pkl", "pt", "pth"),
    *("rar", "safetensors", "tar", "tflite", "tgz", "wasm", "xz", "zip", "zst"),
)
DEFAULT_ATTRIBUTES = "".join(f"*.{ending} {LARGE}\n" for ending in _ENDINGS)


def pattern(glob: str) -> re.Pattern[str]:
    """A glob of git's as an expression that matches whole paths.

    A glob without an inner slash applies at every depth; `*` stays within a folder, `**` does not.
    """
    rooted = "/" in glob.rstrip("/")
    text = glob.strip("/")
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]+\])", text)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(
        known.get(part)
        or (part if part.startswith("[") and part.endswith("]") else re.escape(part))
        for part in parts
    )
    return re.compile(("" if rooted else "(?:.*/)?") + body + "(?:/.*)?")


def is_large(path: str, attributes: str) -> bool:
    """Whether `.gitattributes` hands the path to LFS; the last line that speaks of it decides."""
    large = False
    for line in attributes.splitlines():
        glob, *rest = line.split()[:1] + line.split()[1:] or [""]
        if not glob or glob.startswith("#") or not pattern(glob).fullmatch(path):
            continue
        for word in rest:
            if word == "filter=lfs":
                large = True
            elif word in ("-filter", "!filter"):
                large = False
    return large


def with_large(attributes: str, paths: Iterable[str]) -> str:
    """The attributes, with a line for every large file that none covers yet.

    The Hub does this when large files are committed over HTTP.
    """
    lines = [f"{p} {LARGE}\n" for p in sorted(paths) if not is_large(p, attributes)]
    if not lines:
        return attributes
    start = attributes if not attributes or attributes.endswith("\n") else attributes + "\n"
    return start + "".join(lines)
