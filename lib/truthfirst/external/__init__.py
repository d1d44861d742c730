"""External benchmarks: what others measure, run on our checkpoints by their own code and their own scoring."""
