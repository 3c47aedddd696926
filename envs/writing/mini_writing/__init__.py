"""MiniWriting: a writing game in the vocabulary of the embedded model."""
