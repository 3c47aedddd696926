"""What makes passes faster where they run on a CPU: attention of its own, and products by the faster library."""
