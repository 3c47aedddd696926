"""Memory plans: bytes that each phase of a training needs per device, computed before a model is loaded."""
