"""Changes of a busy database: steps, locks that are not held for long, indexes built beside the traffic."""
