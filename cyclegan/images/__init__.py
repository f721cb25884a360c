"""Image files: their formats, readers and writers, sizes and value ranges, with NumPy only."""
