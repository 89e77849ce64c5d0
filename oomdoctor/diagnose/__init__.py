"""A log or an exception in, a diagnosis out.

`read` turns any input into lines, `collect` turns lines into events, `judge` turns events into a
`facts.Diagnosis`. Nothing here imports TensorFlow, and no input makes it raise.
"""
