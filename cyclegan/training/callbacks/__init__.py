"""Objects that react to the events of training; see `callbacks.base`."""
