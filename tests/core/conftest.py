"""What holds for every test of the core."""

from hypothesis import HealthCheck, settings

# A busy machine makes an example slow, and that is no finding.
settings.register_profile(
    "core", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("core")
