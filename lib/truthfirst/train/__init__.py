"""Training: supervised, and GRPO on episodes of either wing. Import the modules one by one: torch is slow."""
