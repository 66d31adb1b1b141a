"""What makes several replicas and micro-batches train the model that one would."""
