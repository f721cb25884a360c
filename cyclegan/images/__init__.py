"""Image files: readers, writer, color, geometry and value range, with NumPy only."""
