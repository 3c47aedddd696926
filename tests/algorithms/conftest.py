"""Settings of the tests of laws."""

from hypothesis import settings

# A busy machine is no fault of the code, and a first call pays for its imports.
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")
