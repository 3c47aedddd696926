"""Worker processes of sandboxes, outside of the jail."""
