#!/usr/bin/env python3
"""torch_decode.py [--models 1b,8b] [--ways graph,compile,regional,autotune] [--device cuda]

Batch-1 decode of Llama-shaped models with random bf16 weights in PyTorch, each step captured in a CUDA
graph, greedy, tokens chained on the device, 512 positions of KV cache looked at:

  graph     PyTorch's own kernels (cuBLAS products, SDPA), not compiled
  compile   torch.compile, with the settings of pytorch-labs/gpt-fast (coordinate descent tuning: products
            of one row become Triton reductions)
  regional  the same, a layer at a time: compiled in seconds, but nothing is fused across layers
  autotune  torch.compile, mode max-autotune, coordinate descent as well

One JSON line each: us a token (median, least, 90th percentile) with a graph launched alone, and in a row
of 20. A way that fails says so in its line; exit code 1 if any did."""
import argparse
import json
import math
import sys
import time

import torch
import torch.nn.functional as F

SHAPES = {
    "1b": dict(layers=16, d=2048, ffn=8192, heads=32, kv_heads=8, head=64, vocab=128256),
    "8b": dict(layers=32, d=4096, ffn=14336, heads=32, kv_heads=8, head=128, vocab=128256),
    "tiny": dict(layers=2, d=64, ffn=128, heads=4, kv_heads=2, head=16, vocab=512),
}
POSITIONS = 512
EPSILON = 1e-5


class Layer(torch.nn.Module):
    def __init__(self, c, device):
        super().__init__()
        rows = (c["heads"] + 2 * c["kv_heads"]) * c["head"]

        def weight(*shape):
            return torch.nn.Buffer(torch.randn(*shape, device=device, dtype=torch.bfloat16) * 0.02)

        self.c = c
        self.qkv, self.o = weight(rows, c["d"]), weight(c["d"], c["heads"] * c["head"])
        self.gate_up, self.down = weight(2 * c["ffn"], c["d"]), weight(c["d"], c["ffn"])
        ones = torch.ones(c["d"], device=device, dtype=torch.bfloat16)
        self.norm1, self.norm2 = torch.nn.Buffer(ones), torch.nn.Buffer(ones.clone())
        cache = (1, c["kv_heads"], POSITIONS, c["head"])
        self.keys = torch.nn.Buffer(torch.randn(cache, device=device, dtype=torch.bfloat16))
        self.values = torch.nn.Buffer(torch.randn(cache, device=device, dtype=torch.bfloat16))

    def rotate(self, x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    def forward(self, x, position, cos, sin):
        c = self.c
        y = F.linear(F.rms_norm(x, (c["d"],), self.norm1, EPSILON), self.qkv)
        q, k, v = y.split([c["heads"] * c["head"], c["kv_heads"] * c["head"], c["kv_heads"] * c["head"]], -1)
        q = self.rotate(q.view(1, c["heads"], 1, c["head"]), cos, sin)
        k = self.rotate(k.view(1, c["kv_heads"], 1, c["head"]), cos, sin)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v.view(1, c["kv_heads"], 1, c["head"]))
        # All 512 positions are looked at, the last one written just now: no mask.
        y = F.scaled_dot_product_attention(q, self.keys, self.values, enable_gqa=True)
        x = x + F.linear(y.reshape(1, -1), self.o)
        gate, up = F.linear(F.rms_norm(x, (c["d"],), self.norm2, EPSILON), self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Model(torch.nn.Module):
    def __init__(self, c, device):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(c, device) for _ in range(c["layers"]))
        # The embedding is looked up in the head's weights.
        self.head = torch.nn.Buffer(torch.randn(c["vocab"], c["d"], device=device, dtype=torch.bfloat16) * 0.02)
        self.norm = torch.nn.Buffer(torch.ones(c["d"], device=device, dtype=torch.bfloat16))
        half = c["head"] // 2
        turns = 500000.0 ** (-torch.arange(half, dtype=torch.float64) / half) * (POSITIONS - 1)
        self.cos = torch.nn.Buffer(torch.cos(turns).float().to(device))
        self.sin = torch.nn.Buffer(torch.sin(turns).float().to(device))
        self.d = c["d"]

    def forward(self, token, position):
        x = F.embedding(token, self.head)
        for layer in self.layers:
            x = layer(x, position, self.cos, self.sin)
        return self.finish(x)

    def finish(self, x):
        logits = F.linear(F.rms_norm(x, (self.d,), self.norm, EPSILON), self.head)
        return logits, logits.argmax(-1)

    def bytes(self):
        weights = sum(b.numel() * b.element_size() for n, b in self.named_buffers()
                      if not n.endswith(("keys", "values", "cos", "sin")))
        cache = sum(b.numel() * b.element_size() for n, b in self.named_buffers() if n.endswith(("keys", "values")))
        return weights, cache


def summary(us):
    us = sorted(us)
    return us[len(us) // 2], us[0], us[len(us) * 9 // 10]


def timed(launch, runs, repeat=1):
    us = []
    for i in range(-3, runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeat):
            launch()
        end.record()
        end.synchronize()
        if i >= 0:
            us.append(begin.elapsed_time(end) * 1000 / repeat)
    return summary(us)


def captured(function, token, position):
    """A graph of one step; the step ends by putting its token where the next one looks."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            token.copy_(function(token, position)[1])
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits, chosen = function(token, position)
        token.copy_(chosen)
    return graph, logits


def step_function(model, way):
    if way == "graph":
        return model
    import torch._inductor.config as config
    torch._dynamo.reset()
    config.coordinate_descent_tuning = True
    config.triton.unique_kernel_names = True
    if way == "compile":
        return torch.compile(model, fullgraph=True)
    if way == "regional":
        layer = torch.compile(Layer.forward, fullgraph=True)
        finish = torch.compile(Model.finish, fullgraph=True)

        def step(token, position):
            x = F.embedding(token, model.head)
            for each in model.layers:
                x = layer(each, x, position, model.cos, model.sin)
            return finish(model, x)
        return step
    return torch.compile(model, fullgraph=True, mode="max-autotune-no-cudagraphs")


def measure(name, model, way, device):
    line = {"peer": "torch_decode", "model": name, "way": way, "torch": torch.__version__,
            "positions": POSITIONS}
    line["weight_bytes"], line["kv_bytes"] = model.bytes()
    begun = time.time()
    token = torch.tensor([1], device=device)
    position = torch.tensor([POSITIONS - 1], device=device)
    function = step_function(model, way)
    plain_logits, _ = model(token, position)
    logits, _ = function(token, position)
    difference = (logits.float() - plain_logits.float()).norm() / plain_logits.float().norm()
    line["difference"] = round(float(difference), 5) # of the logits, from those that were not compiled
    if device == "cuda":
        graph, logits = captured(function, token, position)
        line["prepare_s"] = round(time.time() - begun, 1)
        line["us"], line["us_min"], line["us_p90"] = (round(x, 2) for x in timed(graph.replay, 60))
        in_a_row = timed(graph.replay, 12, 20)
        line["us_in_a_row"], line["us_in_a_row_min"] = round(in_a_row[0], 2), round(in_a_row[1], 2)
        line["tb_s"] = round((line["weight_bytes"] + line["kv_bytes"]) / in_a_row[0] * 1e-6, 3)
    line["ok"] = bool(torch.isfinite(logits).all()) and math.isfinite(difference) and float(difference) < 0.05
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="1b,8b")
    parser.add_argument("--ways", default="graph,compile,autotune")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device in PyTorch's eyes")
        return 77
    failed = False
    for name in args.models.split(","):
        torch.manual_seed(0)
        with torch.no_grad():
            model = Model(SHAPES[name], args.device)
            for way in args.ways.split(","):
                try:
                    line = measure(name, model, way, args.device)
                except Exception as error: # the next way is tried all the same
                    line = {"peer": "torch_decode", "model": name, "way": way, "ok": False,
                            "error": repr(error)[:300]}
                failed = failed or not line["ok"]
                print(json.dumps(line), flush=True)
        del model
        if args.device == "cuda":
            torch.cuda.empty_cache()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
