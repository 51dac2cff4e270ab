"""Rules of the normalization operators."""
