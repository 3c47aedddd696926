"""Keys and values of the sequences that are decoded: where they are kept, and attention to them."""
