"""The ledger contract and its two engines: SQLite and PostgreSQL."""
