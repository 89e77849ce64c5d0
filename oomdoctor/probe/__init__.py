"""The machine as it is now, or as a catalogue says it is: RAM, its limits, and the GPUs."""
