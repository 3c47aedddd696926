"""Export of trained models as folders, and exchange of teams with the Hugging Face hub."""
