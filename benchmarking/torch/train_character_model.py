"""Trains a small character model on this repository's own pages, with your attention kernels. The
loss stands beside that of the same model with PyTorch's attention, from the same start. On a GPU,
--decode flash then generates text with your decoding kernels, from a cache in pages.

    cmake --preset cpu -DFLASH_TORCH_PYTHON=PYTHON      (a Python that has PyTorch)
    cmake --build build/cpu --target flash_course_skeleton flash_course_solution
    PYTHON benchmarking/torch/train_character_model.py build/cpu/lib/libflash_course_skeleton.so

Until your backward pass is written: --backward pytorch_flash. On a GPU: preset default, --device
cuda, and --backward pytorch_efficient.
"""

import argparse
import pathlib
import time

import torch
from torch import nn

WIDTH, HEADS, LAYERS, LENGTH, BATCH, PAGE = 128, 2, 2, 64, 16, 16
parser = argparse.ArgumentParser(description="Trains a small character model with your kernels.")
parser.add_argument("library", help="libflash_course_skeleton.so or ..._solution.so")
parser.add_argument("--forward", default="flash", help="name of a forward pass (%(default)s)")
parser.add_argument("--backward", default="flash", help="name of a backward pass (%(default)s)")
parser.add_argument("--decode", help="name of a decoding pass; without it no text is generated")
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

    def forward(self, text, first=0):  # (batch, sequence), numbers of characters from `first` on
        places = self.place.weight[first:first + text.shape[1]]
        return self.head(self.blocks(self.token(text) + places))


class Cache:
    """Takes the place of a layer's attention: keeps the keys and values of all characters so far,
    in pages, and attends to them with the query of the next one."""

    def __init__(self):
        pages = BATCH * LENGTH // PAGE
        self.k, self.v = torch.empty(2, pages, PAGE, HEADS, WIDTH // HEADS, device=options.device)
        self.table = torch.randperm(pages, device=options.device).view(BATCH, -1).int()
        self.length = 0

    def __call__(self, q, k, v):  # (batch, heads, 1, head_dim)
        for cache, x in ((self.k, k), (self.v, v)):
            cache[self.table[:, self.length // PAGE], self.length % PAGE] = x[:, :, 0]
        self.length += 1
        lengths = torch.full((BATCH,), self.length, dtype=torch.int32, device=options.device)
        return torch.ops.flash_course.decode(q, self.k, self.v, self.table, lengths,
                                             name=options.decode)[0]


@torch.no_grad()
def generate(model):
    for block in model.blocks:
        block.attention = Cache()
    text = data[torch.randint(len(data), (BATCH, 1))].to(options.device)
    begin = time.perf_counter()
    for place in range(LENGTH):
        chances = model(text[:, -1:], place)[:, 0].softmax(-1)
        text = torch.cat([text, torch.multinomial(chances, 1)], 1)
    written = ["".join(characters[one] for one in line) for line in text.tolist()]
    seconds = time.perf_counter() - begin
    print(f"{BATCH * LENGTH / seconds:.0f} tokens a second; one text of {BATCH}:\n{written[0]}")


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
if options.decode:
    generate(models[0])
