"""A submission in processes of its own: what is sent to it, and what comes back."""
