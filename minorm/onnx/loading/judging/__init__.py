"""What each tensor of a file is, a Parameter, a buffer or a constant: by name, numbers and place."""
