"""One log copied elsewhere: pages with their added ids and times, checked by sums, throttled, resumable."""
