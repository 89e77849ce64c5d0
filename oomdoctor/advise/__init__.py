"""Facts and rules in, findings out.

`load.load_rules` reads the rule files, `evaluate.advise` runs them over `Facts`, `page` prints
them. A rule is data: a condition over declared facts, a remedy, and prose. Nothing here imports
TensorFlow, NumPy or pandas.
"""
