"""Rules of layers other than normalizations."""
