"""Training-run forensics: logs and configurations of a run in many pieces; its true curve, settings and divergence."""
