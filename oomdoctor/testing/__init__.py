"""The pytest plugin: `@pytest.mark.fits_memory("6GiB")` and the fixture `memory_budget`."""
