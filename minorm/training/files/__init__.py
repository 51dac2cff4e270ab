"""Write the files of a run's folder, and go on from them."""
