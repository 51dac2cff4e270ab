"""A submission runs in separate processes: what is sent to it, and what comes back."""
