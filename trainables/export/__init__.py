"""Export of a trained model in other formats, and the check that it predicts the same as the trial's model."""
