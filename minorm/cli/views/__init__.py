"""Pages, pictures and tables that the commands show."""
