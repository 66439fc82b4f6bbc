def pytest_configure(config) -> None:
    config.addinivalue_line("markers", "kernels_ci: the tests that a build has to pass")
