"""From a row as text to a body, and back."""
