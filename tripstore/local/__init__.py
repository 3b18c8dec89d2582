"""Real database servers on this machine, for demo, tests and benchmarks: temporary, always cleaned up."""
