"""Every case, and every good variant."""

from __future__ import annotations

from collections.abc import Mapping

from tests.seeded.seeded_devices import DEVICES, FOREIGN, GOOD_DEVICES
from tests.seeded.seeded_folders import FOLDERS
from tests.seeded.seeded_libraries import LIBRARIES
from tests.seeded.seeded_python import PYTHON_FILES
from tests.seeded.seeded_recipe import GOOD, Case, Recipe
from tests.seeded.seeded_schemas import GOOD_SCHEMAS, SCHEMAS

CASES: tuple[Case, ...] = (*LIBRARIES, *DEVICES, *FOREIGN, *SCHEMAS, *PYTHON_FILES, *FOLDERS)
GOOD_ONES: Mapping[str, Recipe] = {**GOOD, **GOOD_DEVICES, **GOOD_SCHEMAS}
