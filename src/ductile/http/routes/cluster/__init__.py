"""Routes about the nodes that share a ledger."""
