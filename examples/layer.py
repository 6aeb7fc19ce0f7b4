"""The layer in a minute: what each kind of attention looks at, what it costs, and that it learns.

The task: in a sequence of random symbols, repeat the symbol three places back. No kind of attention needs to compare
tokens for that, so learned positions should do as well as the dot product, and a frozen random matrix should not.
"""

import torch
from torch import nn

from synthattn import SyntheticAttention

SYMBOLS, LENGTH, WIDTH, STEPS = 12, 24, 48, 300
VARIANTS = ["vanilla", "dense", "random", "fixed_random", "factorized_random", "factorized_dense", "random+vanilla"]


class Model(nn.Module):
    def __init__(self, attention: str) -> None:
        super().__init__()
        self.symbol = nn.Embedding(SYMBOLS, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.attention = SyntheticAttention(WIDTH, 4, attention, max_length=LENGTH)
        self.output = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        x = self.symbol(symbols) + self.position.weight
        return self.output(self.attention(x, is_causal=True))


def accuracy_after_training(attention: str) -> float:
    torch.manual_seed(0)
    model = Model(attention)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        symbols = torch.randint(SYMBOLS, (64, LENGTH))
        loss = nn.functional.cross_entropy(model(symbols)[:, 3:].flatten(0, 1), symbols[:, :-3].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    symbols = torch.randint(SYMBOLS, (256, LENGTH))
    with torch.no_grad():
        return float((model.eval()(symbols)[:, 3:].argmax(-1) == symbols[:, :-3]).float().mean())


def looks_at(layer: SyntheticAttention) -> str:
    """Which logits change when one token does."""
    x = torch.randn(1, LENGTH, WIDTH)
    other = x.clone()
    other[0, 5] += 1.0
    with torch.no_grad():
        rows = (layer.logits(x) != layer.logits(other)).any(-1).any(1)[0].sum()
    return "nothing" if rows == 0 else "its own token" if rows == 1 else "all tokens"


def main() -> None:
    print(f"Repeat the symbol three places back, {STEPS} steps, {SYMBOLS} symbols (chance: {1 / SYMBOLS:.0%})\n")
    print(f"{'attention':20}{'a row looks at':>16}{'parameters':>12}{'accuracy':>10}")
    for attention in VARIANTS:
        layer = SyntheticAttention(WIDTH, 4, attention, max_length=LENGTH)
        parameters = sum(p.numel() for p in layer.parameters())
        score = accuracy_after_training(attention)
        print(f"{attention:20}{looks_at(layer):>16}{parameters:12,}{score:10.1%}", flush=True)


if __name__ == "__main__":
    main()
