"""What runs on arrays."""
