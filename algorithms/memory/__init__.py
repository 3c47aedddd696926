"""Memory plans: what a training needs of its devices, by phase, before anything is loaded."""
