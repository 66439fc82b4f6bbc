"""Where images are made: looked up, compiled by workers under the run's budget, kept.

One workshop serves all variants of a run. A unit that several want at once is compiled once; the
others wait for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.build.budget import Run
from kbuild.errors import BuildError, IncompleteError, ToolchainError
from kbuild.languages.base import LANGUAGES, Function, Language
from kbuild.languages.cache import ImageCache, Made
from kbuild.languages.compiled import Compiled
from kbuild.languages.environment import Environments
from kbuild.languages.findings import Failures, failed, unfit
from kbuild.languages.inputs import Kernel, Snapshot, digest, snapshot, toolchain
from kbuild.languages.pool import Pool
from kbuild.languages.shift import Job, Shift
from kbuild.languages.site import Site
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.unit import Unit
from kbuild.registry import Registry

Tell = Callable[[int, int, str], None]
"""Told how many units are done, of how many, and which one is next."""
Note = Callable[[str], None]
_ATTEMPTS = 2
