"""The core suite: teams on all environments of the package, on held-out seeds, in one table and in files to hand in."""
