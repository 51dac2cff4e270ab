"""Write the files of a run's folder, and continue a run from them."""
