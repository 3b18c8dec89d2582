"""What `audit rewrite` makes of code, and what it leaves."""
