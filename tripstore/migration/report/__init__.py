"""Gathers what the report says, from both stores, the ledgers, the jobs and the gates; changes nothing."""
