"""What makes passes faster where they run on a CPU: kernels of our own, and products by the faster library."""
