"""The demo: the whole of what works so far, on this machine, with real processes and measured numbers."""
