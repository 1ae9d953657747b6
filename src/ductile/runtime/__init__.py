"""The loops around the ledger, and the gateway that holds them together."""
