"""The world-first wing: a latent world is made first, told as files, and damaged by a declared, invertible plan."""
