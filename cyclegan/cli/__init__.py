"""One module for each command: `main` takes its arguments, and `program` runs it in a terminal."""
