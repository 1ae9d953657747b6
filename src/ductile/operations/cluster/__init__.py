"""Several gateways on one ledger, as an operator sees them."""
