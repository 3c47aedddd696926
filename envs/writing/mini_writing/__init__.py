"""MiniWriting: the writing game in a vocabulary that the embedded model knows."""
