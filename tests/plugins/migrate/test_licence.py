"""The licence of a package: taken over, and never chosen."""

from __future__ import annotations

import pytest

from kbuild.plugins.migrate.licence import DeclaredLicence, licence_files, read_licence

MIT = (
    "Permission is hereby granted, free of charge, to any person, to deal in the Software without "
    "restriction, including the rights to use, copy, publish, distribute, sublicense, and/or sell"
)
APACHE = "              Apache License\n            Version 2.0, January 2004\n"
BSD_2 = "Redistribution and use in source and binary\nforms, with or without modification"
BSD_3 = f"{BSD_2}\n * may be used to endorse or promote products"
GPL_3 = "GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007"
OSI = "License :: OSI Approved :: "


def read(root, declared, files):
    for name, text in files.items():
        (root / name).write_text(text)
    parts = [DeclaredLicence(text, f"setup.py:{line}") for line, text in enumerate(declared, 1)]
    return read_licence(root, parts, tuple(licence_files(root)))


@pytest.mark.parametrize(
    ("declared", "files", "licence"),
    [
        (["MIT"], {}, "MIT"),
        (["MIT License"], {}, "MIT"),
        (["Apache License, Version 2.0"], {}, "Apache-2.0"),
        (["BSD 3-Clause"], {"LICENSE": BSD_3}, "BSD-3-Clause"),
        (["MIT OR Apache-2.0"], {"LICENSE-MIT": MIT, "LICENSE-A": APACHE}, "MIT OR Apache-2.0"),
        ([f"{OSI}MIT License"], {}, "MIT"),
        ([f"{OSI}BSD License"], {"LICENSE.txt": BSD_3}, "BSD-3-Clause"),
        (["BSD", f"{OSI}BSD License"], {"COPYING": BSD_2}, "BSD-2-Clause"),
        ([f"{OSI}GNU General Public License v3 or later (GPLv3+)"], {"COPYING": GPL_3},
         "GPL-3.0-or-later"),
        (["Apache"], {"LICENCE": APACHE}, "Apache-2.0"),
        ([], {"LICENSE": MIT}, "MIT"),
        ([], {"License.md": f"# Licence\n\n{APACHE}"}, "Apache-2.0"),
        (["MIT"], {"LICENSE": "our own text"}, "MIT"),
    ],
)  # fmt: skip
def test_what_a_package_has(tmp_path, declared, files, licence):
    assert read(tmp_path, declared, files) == (licence, "")


@pytest.mark.parametrize(
    ("declared", "files", "why"),
    [
        ([], {}, "names no licence, and has no LICENSE file"),
        (["BSD"], {}, "setup.py:1 says `BSD`"),
        (["MIT"], {"LICENSE": APACHE}, "setup.py:1 says `MIT`; LICENSE is the text of Apache-2.0"),
        (["MIT", f"{OSI}Apache Software License"], {}, "setup.py:2 says `License :: OSI Approved"),
        ([], {"LICENSE-MIT": MIT, "LICENSE-APACHE": APACHE}, "LICENSE-MIT is the text of MIT"),
        ([], {"LICENSE": f"{MIT} for non-commercial use"}, "LICENSE is of no licence that kbuild"),
        (["License :: Other/Proprietary License"], {"LICENSE": MIT}, "Other/Proprietary License`"),
        ([f"{OSI}BSD License"], {"LICENSE": MIT}, "LICENSE is the text of MIT"),
        (["see the file"], {}, "says `see the file`"),
    ],
)
def test_what_is_left_to_the_author(tmp_path, declared, files, why):
    licence, reason = read(tmp_path, declared, files)
    assert licence == ""
    assert why in reason
