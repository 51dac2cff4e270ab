"""Read tensors in special storage: other files, narrow element types and sparse tensors."""
