"""Commands that upload teams to the Hugging Face hub, or download them."""
