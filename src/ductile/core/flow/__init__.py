"""Flow control: what holds queued jobs back, and until when."""
