"""The licence of a package: taken over, and never chosen."""

from __future__ import annotations

import pytest

from kbuild.plugins.migrate.package import DeclaredLicence, read_licence

OSI = "License :: OSI Approved :: "


@pytest.mark.parametrize(
    ("declared", "files", "licence", "why"),
    [
        (["MIT"], [], "MIT", ""),
        (["Apache License, Version 2.0"], ["LICENSE"], "Apache-2.0", ""),
        (["MIT OR Apache-2.0"], [], "MIT OR Apache-2.0", ""),
        ([f"{OSI}MIT License", "MIT"], [], "MIT", ""),
        ([], [], "", "names no licence, and has no LICENSE file"),
        ([], ["LICENSE"], "", "LICENSE has a text"),
        (["BSD"], [], "", "setup.py:1 says `BSD`"),
        (["MIT", f"{OSI}Apache Software License"], [], "", "setup.py:2 says `License :: OSI"),
        (["License :: Other/Proprietary License"], [], "", "Other/Proprietary License`"),
        (["see the file"], [], "", "says `see the file`"),
    ],
)
def test_licence(declared, files, licence, why):
    parts = [DeclaredLicence(text, f"setup.py:{line}") for line, text in enumerate(declared, 1)]
    found, reason = read_licence(parts, files)
    assert found == licence
    assert why in reason
