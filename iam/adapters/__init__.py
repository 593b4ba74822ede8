"""Outside libraries, one module each."""
