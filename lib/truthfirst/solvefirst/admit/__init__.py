"""Admission: an environment that fails a gate is rejected with the gate's name and the evidence."""
