"""What justified a migration, as one file that can be read and proven a year later."""
