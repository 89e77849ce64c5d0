"""Runs a program, records its memory from outside and inside, and says what the record means.

`records` and `store` are the recording on disk; `outside` watches the process tree, `inside`
runs in the program itself; `growth` and `conclude` read a recording and are pure.
"""
