"""MiniWriting: a writing game with the small vocabulary of the model in this package."""
