"""Use of trained generators: restore them, and translate files, images and arrays of any size."""
