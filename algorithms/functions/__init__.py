"""Pure functions of tensors: advantages, baselines, losses."""
