"""What commands show: pages, pictures and tables."""
