"""Training: supervised, and GRPO on episodes of either wing. Nothing is imported until it is asked for: torch is slow."""
