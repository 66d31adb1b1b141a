"""The compiled training loop: updates, epochs, programs and trials."""
