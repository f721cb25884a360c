"""Programs: one module for each command, with `main`, which takes arguments, and `program`, which runs it in a terminal."""
