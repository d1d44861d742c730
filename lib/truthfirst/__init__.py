"""truthfirst: agent environments whose truth is made before the environment.

Read `types.py` first, then follow the spine:
sample -> solve -> realize -> admit -> roll out -> score -> train -> analyse.
"""

__version__ = "0.1.0"
