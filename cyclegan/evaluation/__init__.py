"""Quality scores of the generators: FID, KID, errors to paired images, cycle and identity errors."""
