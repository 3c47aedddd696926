"""TLDR and ArxivExpansion: two writers write about one source."""
