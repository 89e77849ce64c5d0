"""Changes to a live Keras model that lower the memory of a training step.

Each function takes a model and options and returns the model: the same object, with its weights and
optimizer state. Nothing is rebuilt, so subclassed models and custom layers work too, and a saved
model loads without oomdoctor.
"""
