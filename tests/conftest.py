"""How thorough the property tests are: 100 random cases each, 5,000 in `make test-long`."""

from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("default"), max_examples=5000)
settings.load_profile("default")
