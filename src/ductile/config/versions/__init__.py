"""Earlier versions of the files of a configuration, and their return as a whole."""
