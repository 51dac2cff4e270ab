"""What varies in each lab from year to year, and the plain lab's arguments and answers as a variant has them."""
