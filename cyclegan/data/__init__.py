"""Images of both domains: found, checked, decoded, cached, shuffled, augmented and batched."""
