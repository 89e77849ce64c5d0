"""Source code → matches: memory mistakes found by the syntax tree, without running anything.

Names are followed through imports, assignments, calls of the file's own functions, and chains of
methods. What cannot be followed is unknown, and unknown never matches.
"""
