"""TLDR and ArxivExpansion: writers write about one source."""
