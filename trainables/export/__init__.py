"""A trained model by itself, in the formats of others, and the proof that it is the trial's."""
