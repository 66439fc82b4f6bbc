"""From built variants, or from a project that is about to be built, to what is on the Hub."""

from kbuild.pipeline.upload.before import before_build
from kbuild.pipeline.upload.options import Desk, UploadOptions, project_in, target_of
from kbuild.pipeline.upload.prepare import Prepared, prepare, send

__all__ = [
    "Desk",
    "Prepared",
    "UploadOptions",
    "before_build",
    "prepare",
    "project_in",
    "send",
    "target_of",
]
