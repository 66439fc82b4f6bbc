from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.run import Done
from kbuild.toolchains.wheels.settings import IndexSettings, pip_settings, settings_from

LISTING = """\
:env:.cert='/etc/ca.pem'
:env:.index-url='https://user:secret@env.example.invalid/simple'
debug.verbose='1'
download.timeout='5'
freeze.index-url='https://freeze.example.invalid/simple'
global.extra-index-url='https://a.example.invalid/simple\\nfile:///srv/simple'
global.find-links='/srv/wheels /srv/more'
global.index-url='https://global.example.invalid/simple'
global.timeout='100'
install.trusted-host='a.example.invalid b.example.invalid'
"""


class Pip:
    """A pip that answers, or is not there."""

    def __init__(self, output: str, code: int = 0) -> None:
        self.output, self.code = output, code

    def run(self, argv: Sequence[str], **_: Any) -> Done:
        assert tuple(argv[1:]) == ("-m", "pip", "config", "list")
        return Done(tuple(argv), self.code, self.output, 0.0)


def test_later_sections_win() -> None:
    assert settings_from(LISTING) == IndexSettings(
        index_url="https://user:secret@env.example.invalid/simple",
        extra_index_urls=("https://a.example.invalid/simple", "file:///srv/simple"),
        find_links=("/srv/wheels", "/srv/more"),
        trusted_hosts=("a.example.invalid", "b.example.invalid"),
        cert="/etc/ca.pem",
    )


def test_nothing_is_set() -> None:
    assert settings_from("") == IndexSettings()
    assert settings_from("WARNING: something with = and no.dot") == IndexSettings()


def test_offline() -> None:
    found = settings_from(":env:.no-index='1'\n:env:.find-links='/srv/wheels'\n")
    assert found == IndexSettings(find_links=("/srv/wheels",), no_index=True)


def test_environment_without_pip() -> None:
    environ: Mapping[str, str] = {
        "PIP_INDEX_URL": "https://a.example.invalid/simple",
        "PIP_EXTRA_INDEX_URL": "https://b.example.invalid/simple",
        "PIP_NO_INDEX": "",
        "HOME": "/root",
    }
    assert pip_settings(Pip("No module named pip\n", 1), environ) == IndexSettings(
        index_url="https://a.example.invalid/simple",
        extra_index_urls=("https://b.example.invalid/simple",),
    )


def test_what_pip_says() -> None:
    found = pip_settings(Pip("global.proxy='http://proxy.example.invalid:3128'\n"), {})
    assert found == IndexSettings(proxy="http://proxy.example.invalid:3128")


def test_environment_of_uv_without_pip() -> None:
    environ: Mapping[str, str] = {
        "UV_DEFAULT_INDEX": "https://a.example.invalid/simple",
        "UV_INDEX": "own=https://b.example.invalid/simple https://c.example.invalid/simple",
        "UV_FIND_LINKS": "/srv/wheels,/srv/more",
    }
    assert pip_settings(Pip("No module named pip\n", 1), environ) == IndexSettings(
        index_url="https://a.example.invalid/simple",
        extra_index_urls=("https://b.example.invalid/simple", "https://c.example.invalid/simple"),
        find_links=("/srv/wheels", "/srv/more"),
    )


def test_proxy_without_scheme_and_odd_time_limit() -> None:
    found = settings_from("global.proxy='user:pw@proxy.example.invalid:3128'\nglobal.timeout='x'\n")
    assert found == IndexSettings(proxy="http://user:pw@proxy.example.invalid:3128")
    assert settings_from("global.timeout='90'\n").timeout == 90.0


def test_certificates_of_requests() -> None:
    environ = {"REQUESTS_CA_BUNDLE": "/etc/bundle.pem"}
    assert pip_settings(Pip(""), environ).cert == "/etc/bundle.pem"
    assert pip_settings(Pip("global.cert='/etc/own.pem'\n"), environ).cert == "/etc/own.pem"
