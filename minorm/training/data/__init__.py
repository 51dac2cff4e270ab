"""Read, change and scale the images of a run, and choose settings that fit them."""
