"""The ledger's part of flow control."""
