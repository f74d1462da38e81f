"""Trains a small character model on this repository's own pages, with your attention kernels. The
loss stands beside that of the same model with PyTorch's attention, from the same start.

    cmake --preset cpu -DFLASH_TORCH_PYTHON=PYTHON      (a Python that has PyTorch)
    cmake --build build/cpu --target flash_course_skeleton flash_course_solution
    PYTHON benchmarking/torch/train_character_model.py build/cpu/lib/libflash_course_skeleton.so

Until your backward pass is written: --backward pytorch_flash. On a GPU: preset default, and
--device cuda.
"""

import argparse
import pathlib

import torch
from torch import nn

WIDTH, HEADS, LAYERS, LENGTH, BATCH = 64, 4, 2, 64, 16
parser = argparse.ArgumentParser(description="Trains a small character model with your kernels.")
parser.add_argument("library", help="libflash_course_skeleton.so or ..._solution.so")
parser.add_argument("--forward", default="flash", help="name of a forward pass (%(default)s)")
parser.add_argument("--backward", default="flash", help="name of a backward pass (%(default)s)")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--device", default="cpu")
options = parser.parse_args()
torch.ops.load_library(str(pathlib.Path(options.library).resolve()))
torch.set_num_threads(1)  # the model is so small that threads would wait for each other

def ours(q, k, v):
    return torch.ops.flash_course.attention(q, k, v, causal=True, forward=options.forward,
                                            backward=options.backward)

def pytorchs(q, k, v):
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH))

    def forward(self, x):  # (batch, sequence, width)
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attention(*heads).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, attention, characters):
        super().__init__()
        self.token, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block(attention) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, text):  # (batch, sequence), numbers of characters
        return self.head(self.blocks(self.token(text) + self.place.weight[:text.shape[1]]))


pages = pathlib.Path(__file__).resolve().parents[2].glob("*/README.md")
text = "".join(page.read_text(encoding="utf-8") for page in sorted(pages))
characters = sorted(set(text))
data = torch.tensor([characters.index(one) for one in text])
models = [Model(attention, len(characters)).to(options.device) for attention in (ours, pytorchs)]
models[1].load_state_dict(models[0].state_dict())
optimizers = [torch.optim.AdamW(model.parameters(), lr=3e-3) for model in models]
print("step   yours  PyTorch's")
for step in range(options.steps + 1):
    starts = torch.randint(len(data) - LENGTH, (BATCH,))
    batch = torch.stack([data[i:i + LENGTH + 1] for i in starts]).to(options.device)
    before, after = batch[:, :-1], batch[:, 1:]
    losses = [nn.functional.cross_entropy(model(before).mT, after) for model in models]
    for loss, optimizer in zip(losses, optimizers):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if step % 20 == 0:
        print(f"{step:4}  {losses[0]:.4f}     {losses[1]:.4f}", flush=True)
