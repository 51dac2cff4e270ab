"""Read and write tensors with special storage: in other files, narrow types, and sparse tensors."""
