"""Training: the step, the losses, the optimizers; the trainer with its policies and callbacks."""
