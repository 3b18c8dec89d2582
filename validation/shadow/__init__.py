"""Shadow reads: which are compared, on whose threads, and what all processes counted of them."""
