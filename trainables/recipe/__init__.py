"""What a trial is trained with: optimizer, schedule, loss, augmentation, from the standard hyperparameters."""
