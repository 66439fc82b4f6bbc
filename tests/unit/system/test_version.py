import pytest

from kbuild.system.version import Version


def test_trailing_zeros_do_not_matter_for_order_but_stay_in_print() -> None:
    assert Version.parse("13") == Version.parse("13.0")
    assert hash(Version.parse("13")) == hash(Version.parse("13.0"))
    assert str(Version.parse("13.0")) == "13.0"
    assert Version.parse("2.9") < Version.parse("2.10")


@pytest.mark.parametrize("text", ["", "1.", ".1", "1.x", "v1", "1,2", " 1", "1 ", "9" * 5000])
def test_anything_else_is_refused_with_words(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        Version.parse(text)
