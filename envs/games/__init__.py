"""Cooperative games: agents build structures of blocks, build a bridge, or gather resources."""
