"""What follows from the end of a job, by what has ended; `close.py` runs it."""
