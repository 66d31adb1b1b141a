"""Optimizers, schedules, losses and augmentation of a trial, built from the standard hyperparameters."""
