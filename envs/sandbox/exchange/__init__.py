"""Values that cross the wall of the jail, and what answers mean."""
