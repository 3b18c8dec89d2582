"""What only a migration needs: carrying, copying, comparing, mending, reporting, and moving the authority."""
