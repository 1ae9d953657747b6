"""The ledger: one contract, two engines, one module a noun. Nothing outside writes SQL."""
