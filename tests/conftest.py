"""Settings for all tests."""

from hypothesis import settings

# No deadline: how long an example takes says more about the machine's other work than about the code.
settings.register_profile("multihead", deadline=None)
settings.load_profile("multihead")
