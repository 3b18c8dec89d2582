"""What a process of ours minds: forks, files that are private, and when Python collects."""
