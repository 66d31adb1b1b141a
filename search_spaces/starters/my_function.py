"""A training function to start from: any code that reports its metrics once per epoch."""

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier


def train(hp, report):
    """Train until told to stop: after the last epoch, or earlier where the trial is pruned."""
    x, y = load_digits(return_X_y=True)
    model = SGDClassifier(
        alpha=hp.number("alpha"),
        loss=hp.choice("loss", ["hinge", "log_loss"]),
        random_state=report.seed,
    )
    while True:
        model.partial_fit(x[::2], y[::2], classes=range(10))
        if not report(val_accuracy=model.score(x[1::2], y[1::2])):
            return
