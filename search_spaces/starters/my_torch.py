"""A PyTorch training function to start from; an interrupted trial continues from its last checkpoint."""

import torch
from sklearn.datasets import load_digits


def train(hp, report):
    """Train until told to stop: after the last epoch, or earlier where the trial is pruned."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32, device=device)
    y = torch.tensor(labels, device=device)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, hp.integer("units")),
        torch.nn.ReLU(),
        torch.nn.Linear(hp.integer("units"), 10),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=hp.number("learning_rate"))
    if report.restored:
        saved = torch.load(report.restored / "state.pt", map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"].cpu())

    def save(folder):
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        torch.save(state, folder / "state.pt")

    while True:
        for batch in torch.randperm(len(x) // 2).split(32):
            rows = 2 * batch.to(device)  # train on the even rows, validate on the odd ones
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(x[1::2]).argmax(1) == y[1::2]).float().mean()
        if not report(val_accuracy=float(accuracy), checkpoint=save):
            return
