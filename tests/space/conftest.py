"""Property tests are judged by what they find, not by how busy the machine is."""

from hypothesis import settings

settings.register_profile("sweep", deadline=None, max_examples=20)
settings.load_profile("sweep")
