"""Jobs in the ledger: enqueue, claim, settle, close, requeue."""
