"""The fake driver does not take one tensor for another."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]


def device_of(driver, tensor):
    return driver.library.fake_device_of(tensor.data_ptr())


@pytest.fixture(autouse=True)
def _clean(driver):
    driver.library.fake_device_of.argtypes = driver.library.fake_unplace.argtypes[:1]
    yield
    driver.library.fake_forget()


def test_memory_that_is_used_again(driver):
    """A tensor that is gone says nothing about the next one at its address."""
    memory = bytearray(4096)
    first = torch.frombuffer(memory, dtype=torch.uint8)
    driver.place(first, 3)
    assert device_of(driver, first) == 3
    del first
    assert device_of(driver, torch.frombuffer(memory, dtype=torch.uint8)) == 0


def test_the_last_word_counts(driver):
    """Also where the memory is divided in another way."""
    memory = torch.zeros(4096, dtype=torch.uint8)
    driver.place(memory, 3)
    driver.library.fake_place(memory.data_ptr() + 1024, 512, 5)
    assert device_of(driver, memory[1024:]) == 5
    driver.place(memory, 1)
    assert device_of(driver, memory[1024:]) == 1


def test_many_places(driver):
    """Those that are gone take no room."""
    for _ in range(200):
        driver.place(torch.zeros(1000), 2)
