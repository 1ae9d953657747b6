"""What the ledger on PostgreSQL consists of: connections, transactions, locks, notifications."""
