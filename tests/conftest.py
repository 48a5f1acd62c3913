"""Settings for all tests."""

import pytest
from hypothesis import settings

from multihead.machine.precision import measure

# No deadline: how long an example takes says more about the machine's other work than about the code.
settings.register_profile("multihead", deadline=None)
settings.load_profile("multihead")


@pytest.fixture(scope="session")
def half() -> None:
    """For tests with products in bf16, which end the process on some machines."""
    if died := measure(("bf16",))["bf16"].died:
        pytest.skip(f"bf16 does not work here: {died}")
