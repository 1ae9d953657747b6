"""Pure decisions: plain values in, plain values out. No I/O, no clock, no logging."""
