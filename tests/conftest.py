"""How thorough the property tests are: 100 cases each, the same ones every time, so that a change is judged by its own
merits; 5,000 random ones in `make test-long`, which is where new failures are looked for.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("default"), max_examples=5000, derandomize=False)
settings.load_profile("default")
