"""Assembly of trainers from settings: experiment, policies, critics, and checks of the settings."""
