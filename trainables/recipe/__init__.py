"""What a trial is trained with (optimizer, schedule, loss, augmentation), built from the standard hyperparameters."""
