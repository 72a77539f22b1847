#!/usr/bin/env python3
"""The reference: a Llama-family forward pass in float64, with numpy alone.

It says what a model file means, as plainly as we can, so that the fast code has something to be
compared with. It reads GGUF itself, expands every quantised block from the definition of its
format, keeps all activations in float64 and never approximates. Speed is no aim.

Architectures  llama (rotary pairs interleaved, as GGUF stores them), qwen2 (biases, rotary pairs
               half a head apart), qwen3 (as qwen2, with an RMSNorm on each head of Q and K).
Tensor types   F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K.

A file that asks for anything else (experts, YaRN, an unknown tensor) is refused, not guessed at.

Files
-----
IDS      text: token ids, separated by white space. They are cut into chunks of N tokens, each
         chunk a sequence of its own that starts at position 0. No BOS is added. The last chunk
         may be shorter.

LOGITS   raw float32 (or float64 with --f64), little endian, no header: (position, vocab),
         row-major, one row for each id.

GOLDEN   gzip of the following, all little endian:
             char[8]  "BRIMLOG1"
             uint32   rows
             uint32   vocab
             then for each row:
                 float32  hi
                 float32  step
                 uint8    low[vocab]
                 uint8    high[vocab]
         With q = low[i] + 256 * high[i], the logit of token i is
         (double)hi - (double)step * q * q. So likely tokens, which weigh most in a KL divergence,
         are stored most finely: (step * q)^2 / 3 is the variance of the error, a KL divergence of
         half its mean over the distribution. `golden` prints the measured one. Low and high bytes
         stand apart because gzip packs them better so.

ROWS     gzip of the logits of some positions, all little endian:
             char[8]  "BRIMLOG2"
             uint32   rows
             uint32   vocab
             uint32   position[rows]
             float32  logits[rows][vocab]
"""
import argparse
import gzip
import math
import mmap
import struct
import sys
import zlib

import numpy as np

GOLDEN_MAGIC = b"BRIMLOG1"
ROWS_MAGIC = b"BRIMLOG2"
GOLDEN_HEADER = struct.Struct("<8sII")
GOLDEN_CODES = 40000  # of 65536: finer costs file size, coarser costs precision
LOGIT_ROWS = 128  # rows of logits in memory at a time


class Refused(Exception):
    """The input is damaged or asks for something this program does not do."""


# ---------------------------------------------------------------------------------------------
# Tensor types: blocks as bytes (blocks, bytes a block) to values (blocks, values a block), float64.


def _f16(b):
    """Column pairs of bytes to float64: (n, 2k) uint8 to (n, k)."""
    return np.ascontiguousarray(b).view("<f2").astype(np.float64)


def _nibbles(b):
    """(n, k) bytes to (n, 2k) values: all low halves, then all high halves."""
    return np.concatenate([b & 15, b >> 4], axis=1).astype(np.float64)


def _bits(b):
    """(n, 4) bytes to (n, 32): the bits of a little endian uint32, the lowest first."""
    return np.unpackbits(np.ascontiguousarray(b), axis=1, bitorder="little").astype(np.float64)


def _f32_values(b):
    return np.ascontiguousarray(b).view("<f4").astype(np.float64)


def _bf16_values(b):
    high = np.ascontiguousarray(b).view("<u2").astype(np.uint32) << 16
    return high.view(np.float32).astype(np.float64)


def _q8_0(b):  # f16 d; int8 q[32]
    return _f16(b[:, :2]) * b[:, 2:].view(np.int8)


def _q4_0(b):  # f16 d; nibbles q[32]
    return _f16(b[:, :2]) * (_nibbles(b[:, 2:]) - 8)


def _q4_1(b):  # f16 d, m; nibbles q[32]
    return _f16(b[:, :2]) * _nibbles(b[:, 4:]) + _f16(b[:, 2:4])


def _q5_0(b):  # f16 d; uint32 fifth bits; nibbles q[32]
    return _f16(b[:, :2]) * (_nibbles(b[:, 6:]) + 16 * _bits(b[:, 2:6]) - 16)


def _q5_1(b):  # f16 d, m; uint32 fifth bits; nibbles q[32]
    return _f16(b[:, :2]) * (_nibbles(b[:, 8:]) + 16 * _bits(b[:, 4:8])) + _f16(b[:, 2:4])


def _k_scales(b):
    """The 12 bytes of Q4_K and Q5_K to 8 scales and 8 minima of 6 bits: two (n, 8) arrays.

    The first four of each are the low 6 bits of bytes 0-3 and 4-7. The last four have their low
    4 bits in bytes 8-11 (scale low, minimum high) and their top 2 bits above those first ones.
    """
    lo_s, lo_m, rest = b[:, 0:4], b[:, 4:8], b[:, 8:12]
    scale = np.concatenate([lo_s & 63, (rest & 15) | (lo_s >> 6 << 4)], axis=1)
    minimum = np.concatenate([lo_m & 63, (rest >> 4) | (lo_m >> 6 << 4)], axis=1)
    return scale.astype(np.float64), minimum.astype(np.float64)


def _k_quants(b):
    """(n, 128) bytes to (n, 8, 32): each 32 bytes hold 32 low halves, then 32 high halves."""
    b = b.reshape(-1, 4, 1, 32)
    return np.concatenate([b & 15, b >> 4], axis=2).reshape(-1, 8, 32).astype(np.float64)


def _k_affine(b, q):
    """Both K types with minima: d * scale * q - dmin * minimum, for q of (n, 8, 32)."""
    scale, minimum = _k_scales(b[:, 4:16])
    a = _f16(b[:, 0:2]) * scale
    c = _f16(b[:, 2:4]) * minimum
    return (a[:, :, None] * q - c[:, :, None]).reshape(-1, 256)


def _q4_k(b):  # f16 d, dmin; 12 bytes of scales; nibbles q[256]
    return _k_affine(b, _k_quants(b[:, 16:]))


def _q5_k(b):  # f16 d, dmin; 12 bytes of scales; fifth bits [32], bit j for group j; nibbles q[256]
    fifth = (b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1
    return _k_affine(b, _k_quants(b[:, 48:]) + 16.0 * fifth)


def _q6_k(b):  # low nibbles [128]; high bit pairs [64]; int8 scales[16]; f16 d
    low = b[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shift = np.array([0, 2, 4, 6], dtype=np.uint8)[None, None, :, None]
    high = (b[:, 128:192].reshape(-1, 2, 1, 32) >> shift) & 3
    q = (low.astype(np.float64) + 16.0 * high - 32).reshape(-1, 16, 16)
    scale = _f16(b[:, 208:210]) * b[:, 192:208].view(np.int8)
    return (scale[:, :, None] * q).reshape(-1, 256)


# type number in the file: (name, values a block, bytes a block, block bytes to values)
TYPES = {
    0: ("F32", 1, 4, _f32_values),
    1: ("F16", 1, 2, _f16),
    2: ("Q4_0", 32, 18, _q4_0),
    3: ("Q4_1", 32, 20, _q4_1),
    6: ("Q5_0", 32, 22, _q5_0),
    7: ("Q5_1", 32, 24, _q5_1),
    8: ("Q8_0", 32, 34, _q8_0),
    12: ("Q4_K", 256, 144, _q4_k),
    13: ("Q5_K", 256, 176, _q5_k),
    14: ("Q6_K", 256, 210, _q6_k),
    30: ("BF16", 1, 2, _bf16_values),
}


# ---------------------------------------------------------------------------------------------
# GGUF


class Gguf:
    """A GGUF file of version 2 or 3: `meta` (key to value) and tensors by name."""

    SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
               11: "<q", 12: "<d"}
    STRING, ARRAY = 8, 9

    def __init__(self, path):
        with open(path, "rb") as f:
            try:
                self.data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise Refused(f"{path}: empty file") from None
        self.path = path
        self.pos = 0
        if self._take(4) != b"GGUF":
            raise Refused(f"{path}: not a GGUF file")
        version = self._scalar("<I")
        if version not in (2, 3):
            raise Refused(f"{path}: GGUF version {version}, expected 2 or 3 (little endian)")
        tensor_count = self._scalar("<Q")
        meta_count = self._scalar("<Q")
        self.meta = {}
        for _ in range(meta_count):
            key = self._string()
            self.meta[key] = self._value(self._scalar("<I"))
        self.infos = {}  # name: (shape, type, offset from the start of the data)
        for _ in range(tensor_count):
            name = self._string()
            dims = [self._scalar("<Q") for _ in range(self._scalar("<I"))]
            type_id = self._scalar("<I")
            # The file names the fastest dimension first, numpy names it last.
            self.infos[name] = (tuple(reversed(dims)), type_id, self._scalar("<Q"))
        align = self.meta.get("general.alignment", 32)
        if align == 0:
            raise Refused(f"{path}: general.alignment is 0")
        self.base = -(-self.pos // align) * align

    def _take(self, size):
        if size > len(self.data) - self.pos:
            raise Refused(f"{self.path}: ends inside its header, at byte {len(self.data)}")
        self.pos += size
        return self.data[self.pos - size:self.pos]

    def _scalar(self, fmt):
        return struct.unpack(fmt, self._take(struct.calcsize(fmt)))[0]

    def _string(self):
        return self._take(self._scalar("<Q")).decode("utf-8", "surrogateescape")

    def _value(self, kind):
        if kind in self.SCALARS:
            return self._scalar(self.SCALARS[kind])
        if kind == self.STRING:
            return self._string()
        if kind == self.ARRAY:
            item, count = self._scalar("<I"), self._scalar("<Q")
            return [self._value(item) for _ in range(count)]
        raise Refused(f"{self.path}: metadata of unknown type {kind} before byte {self.pos}")

    def __contains__(self, name):
        return name in self.infos

    def tensor(self, name, rows=None):
        """The tensor in float64; `rows` picks rows of its first dimension."""
        if name not in self.infos:
            raise Refused(f"{self.path}: no tensor {name}")
        shape, type_id, offset = self.infos[name]
        if type_id not in TYPES:
            raise Refused(f"{self.path}: {name} has unsupported tensor type {type_id}")
        type_name, block_values, block_bytes, expand = TYPES[type_id]
        if shape[-1] % block_values:
            raise Refused(f"{self.path}: {name} ({type_name}) has rows of {shape[-1]} values, "
                          f"not a multiple of {block_values}")
        row_bytes = shape[-1] // block_values * block_bytes
        row_count = math.prod(shape[:-1])
        start = self.base + offset
        if start + row_bytes * row_count > len(self.data):
            raise Refused(f"{self.path}: {name} ends past the end of the file")
        raw = np.frombuffer(self.data, np.uint8, row_bytes * row_count, start)
        if rows is not None:
            raw = raw.reshape(row_count, row_bytes)[rows]
            shape = (len(rows),) + shape[1:]
        return expand(raw.reshape(-1, block_bytes)).reshape(shape)


# ---------------------------------------------------------------------------------------------
# The model


def rms_norm(x, weight, eps):
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def log_softmax(x):
    """Log-probabilities over the last dimension."""
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Model:
    """A model file and what its metadata says; tensors are expanded when they are needed."""

    def __init__(self, path):
        self.file = Gguf(path)
        self.arch = self._meta("general.architecture")
        if self.arch not in ("llama", "qwen2", "qwen3"):
            raise Refused(f"{path}: architecture {self.arch}, expected llama, qwen2 or qwen3")
        self.layers = self._hyper("block_count")
        self.width = self._hyper("embedding_length")
        self.heads = self._hyper("attention.head_count")
        self.kv_heads = self._hyper("attention.head_count_kv", self.heads)
        for what, value in (("head_count", self.heads), ("head_count_kv", self.kv_heads)):
            if not isinstance(value, int) or value < 1:
                raise Refused(f"{path}: attention.{what} must be one positive number")
        if self.heads % self.kv_heads:
            raise Refused(f"{path}: {self.heads} heads do not divide by {self.kv_heads} KV heads")
        self.head_dim = self._hyper("attention.key_length", self.width // self.heads)
        self.value_dim = self._hyper("attention.value_length", self.width // self.heads)
        self.scale = self._hyper("attention.scale", 0.0) or 1 / math.sqrt(self.head_dim)
        self.eps = self._hyper("attention.layer_norm_rms_epsilon")
        self.window = self._hyper("attention.sliding_window", 0)
        if (not isinstance(self.window, int)
                or self._hyper("attention.sliding_window_pattern", None) is not None):
            raise Refused(f"{path}: layers with and without a sliding window are not supported")
        if self._hyper("expert_count", 0):
            raise Refused(f"{path}: mixtures of experts are not supported")
        self.head = "output.weight" if "output.weight" in self.file else "token_embd.weight"
        self.vocab = self._check_tensors()
        self.rope_step = self._rope_step()

    def _meta(self, key, *default):
        if key not in self.file.meta and not default:
            raise Refused(f"{self.file.path}: no metadata {key}")
        return self.file.meta.get(key, *default)

    def _hyper(self, key, *default):
        return self._meta(f"{self.arch}.{key}", *default)

    def _rope_dims(self):
        return self._hyper("rope.dimension_count", self.head_dim)

    def _rope_step(self):
        """The angle by which each rotary pair turns from one position to the next: (pairs,)."""
        dims = self._rope_dims()
        base = self._hyper("rope.freq_base", 10000.0)
        kind = self._hyper("rope.scaling.type", None)
        factor = self._hyper("rope.scale_linear", 1.0)  # the key before rope.scaling existed
        if kind == "linear":
            factor = self._hyper("rope.scaling.factor", factor)
        elif kind not in (None, "none"):
            raise Refused(f"{self.file.path}: rope scaling {kind} is not supported")
        step = float(base) ** (-np.arange(0, dims, 2, dtype=np.float64) / dims) / (factor or 1.0)
        if "rope_freqs.weight" in self.file:
            step = step / self.file.tensor("rope_freqs.weight")
        return step

    def _check_tensors(self):
        """Every tensor has its place and shape, and none is left over."""
        q, k = self.heads * self.head_dim, self.kv_heads * self.head_dim
        v, out = self.kv_heads * self.value_dim, self.heads * self.value_dim
        ffn = self._hyper("feed_forward_length")
        vocab = self.file.infos.get(self.head, ((0,),))[0][0]
        needed = {"token_embd.weight": (vocab, self.width), "output_norm.weight": (self.width,)}
        optional = {"output.weight": (vocab, self.width),
                    "rope_freqs.weight": (self._rope_dims() // 2,)}
        for blk in (f"blk.{i}." for i in range(self.layers)):
            for name, rows, columns in (("attn_q", q, self.width), ("attn_k", k, self.width),
                                        ("attn_v", v, self.width), ("attn_output", self.width, out),
                                        ("ffn_gate", ffn, self.width), ("ffn_up", ffn, self.width),
                                        ("ffn_down", self.width, ffn)):
                needed[f"{blk}{name}.weight"] = (rows, columns)
                optional[f"{blk}{name}.bias"] = (rows,)
            needed[blk + "attn_norm.weight"] = needed[blk + "ffn_norm.weight"] = (self.width,)
            if self.arch == "qwen3":
                needed[blk + "attn_q_norm.weight"] = (self.head_dim,)
                needed[blk + "attn_k_norm.weight"] = (self.head_dim,)
        for name in needed:
            if name not in self.file:
                raise Refused(f"{self.file.path}: no tensor {name}")
        expected = needed | optional
        for name, (shape, _, _) in self.file.infos.items():
            if name not in expected:
                raise Refused(f"{self.file.path}: tensor {name} has no place in this architecture")
            if shape != expected[name]:
                raise Refused(f"{self.file.path}: {name} is {shape}, expected {expected[name]}")
        return vocab

    def _linear(self, x, name):
        """x @ W^T, plus the bias if the file has one."""
        y = x @ self.file.tensor(name + ".weight").T
        if name + ".bias" in self.file:
            y = y + self.file.tensor(name + ".bias")
        return y

    def _norm(self, x, name):
        return rms_norm(x, self.file.tensor(name + ".weight"), self.eps)

    def _rope(self, x, position):
        """Turn the rotary pairs of x (token, head, dim); dims past the rotary ones stay."""
        pairs = len(self.rope_step)
        angle = position[:, None, None] * self.rope_step
        cos, sin = np.cos(angle), np.sin(angle)
        if self.arch == "llama":  # pair i is (2i, 2i + 1)
            first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
        else:  # pair i is (i, i + pairs)
            first, second = slice(0, pairs), slice(pairs, 2 * pairs)
        out = x.copy()
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def _attend(self, q, k, v):
        """Causal attention within one chunk: (token, head, dim) to (token, heads * value_dim)."""
        count = len(q)
        age = np.arange(count)[:, None] - np.arange(count)[None, :]  # of key seen from query
        hidden = age < 0
        if self.window:
            hidden |= age >= self.window
        out = np.empty((count, self.heads, self.value_dim))
        group = self.heads // self.kv_heads
        for head in range(self.heads):
            score = q[:, head] @ k[:, head // group].T * self.scale
            score[hidden] = -np.inf
            out[:, head] = np.exp(log_softmax(score)) @ v[:, head // group]
        return out.reshape(count, -1)

    def _layer(self, x, i, chunk):
        """One transformer block over all chunks: (token, width) to (token, width)."""
        blk = f"blk.{i}."
        h = self._norm(x, blk + "attn_norm")
        q = self._linear(h, blk + "attn_q").reshape(len(x), self.heads, self.head_dim)
        k = self._linear(h, blk + "attn_k").reshape(len(x), self.kv_heads, self.head_dim)
        v = self._linear(h, blk + "attn_v").reshape(len(x), self.kv_heads, self.value_dim)
        if self.arch == "qwen3":
            q, k = self._norm(q, blk + "attn_q_norm"), self._norm(k, blk + "attn_k_norm")
        position = np.arange(len(x)) % chunk
        q, k = self._rope(q, position), self._rope(k, position)
        attended = np.concatenate([self._attend(q[s:s + chunk], k[s:s + chunk], v[s:s + chunk])
                                   for s in range(0, len(x), chunk)])
        x = x + self._linear(attended, blk + "attn_output")
        h = self._norm(x, blk + "ffn_norm")
        gate = self._linear(h, blk + "ffn_gate")
        silu = gate / (1 + np.exp(-gate))
        return x + self._linear(silu * self._linear(h, blk + "ffn_up"), blk + "ffn_down")

    def hidden(self, ids, chunk):
        """The final normed hidden state of each token: (token, width)."""
        if ids.min() < 0 or ids.max() >= self.vocab:
            raise Refused(f"token ids run from {ids.min()} to {ids.max()}, "
                          f"the model has {self.vocab}")
        x = self.file.tensor("token_embd.weight", rows=ids)
        for i in range(self.layers):
            progress(f"layer {i + 1} of {self.layers}")
            x = self._layer(x, i, chunk)
        progress("")
        return self._norm(x, "output_norm")

    def logits(self, ids, chunk):
        """Yield logits in order, some positions at a time: (position, vocab)."""
        x = self.hidden(ids, chunk)
        weight = self.file.tensor(self.head).T
        for s in range(0, len(x), LOGIT_ROWS):
            progress(f"logits {s} of {len(x)}")
            yield x[s:s + LOGIT_ROWS] @ weight
        progress("")


# ---------------------------------------------------------------------------------------------
# Files


def progress(text):
    """One line on a terminal, rewritten in place; nothing in a pipe."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def read_ids(path):
    """Token ids from a text file: (token,) of int64."""
    with open(path, encoding="ascii", errors="replace") as f:
        words = f.read().split()
    try:
        ids = np.array([int(word) for word in words], dtype=np.int64)
    except (ValueError, OverflowError):
        raise Refused(f"{path}: expected token ids separated by white space") from None
    if not len(ids):
        raise Refused(f"{path}: no token ids")
    return ids


def quantise_row(row):
    """One row of logits as (hi, step, q) of a golden file."""
    if not np.isfinite(row).all():
        raise Refused("logits are not finite")
    # float32 rounding may put hi below the true maximum: those q are 0, the error far below a step.
    hi = np.float32(row.max())
    depth = np.maximum(np.float64(hi) - row, 0)
    step = np.float32(depth.max() / GOLDEN_CODES**2)
    if step == 0:
        return hi, step, np.zeros(len(row), dtype=np.uint16)
    return hi, step, np.rint(np.sqrt(depth / np.float64(step))).astype(np.uint16)


def expand_row(hi, step, q):
    """The logits that a golden row stands for, in float64."""
    return np.float64(hi) - np.float64(step) * np.square(q.astype(np.float64))


def read_golden(path):
    """A golden file as (rows, vocab, iterator over rows in float64)."""
    f = gzip.open(path, "rb")
    try:
        header = f.read(GOLDEN_HEADER.size)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        header = b""
    if len(header) != GOLDEN_HEADER.size or not header.startswith(GOLDEN_MAGIC):
        raise Refused(f"{path}: not a golden file")
    _, rows, vocab = GOLDEN_HEADER.unpack(header)

    def each_row():
        with f:
            for r in range(rows):
                try:
                    raw = f.read(8 + 2 * vocab)
                except (gzip.BadGzipFile, EOFError, zlib.error):
                    raw = b""
                if len(raw) != 8 + 2 * vocab:
                    raise Refused(f"{path}: damaged or cut short at row {r} of {rows}")
                hi, step = np.frombuffer(raw, "<f4", 2)
                low, high = np.frombuffer(raw, np.uint8, -1, 8).reshape(2, vocab).astype(np.uint16)
                yield expand_row(hi, step, low + 256 * high)

    return rows, vocab, each_row()


def read_logits(path, rows, vocab):
    """Iterator over the rows of LOGITS, float32 or float64 by its size, or of another golden."""
    with open(path, "rb") as f:
        is_gzip = f.read(2) == b"\x1f\x8b"
        size = f.seek(0, 2)
    if size in (rows * vocab * 4, rows * vocab * 8):
        dtype = "<f4" if size == rows * vocab * 4 else "<f8"
        return iter(np.memmap(path, dtype, "r", shape=(rows, vocab)))
    if is_gzip:
        other_rows, other_vocab, each_row = read_golden(path)
        if (other_rows, other_vocab) == (rows, vocab):
            return each_row
        raise Refused(f"{path}: {other_rows} x {other_vocab} logits, expected {rows} x {vocab}")
    raise Refused(f"{path}: {size} bytes, expected {rows} x {vocab} values of 4 or 8 bytes")


def kl_divergence(p_logits, q_logits):
    """KL(p || q) in nats of two rows of logits."""
    p, q = log_softmax(p_logits), log_softmax(np.asarray(q_logits, dtype=np.float64))
    return float(np.exp(p) @ (p - q))


# ---------------------------------------------------------------------------------------------
# Commands


def cmd_logits(args):
    """Write the logits of every position."""
    model, ids = Model(args.model), read_ids(args.ids)
    with open(args.output, "wb") as f:
        for block in model.logits(ids, args.chunk or len(ids)):
            f.write(block.astype("<f8" if args.f64 else "<f4").tobytes())
    print(f"{len(ids)} x {model.vocab} logits in {args.output}")


def cmd_perplexity(args):
    """Score every token but the first of each chunk."""
    model, ids = Model(args.model), read_ids(args.ids)
    chunk = args.chunk or len(ids)
    if min(chunk, len(ids)) < 2:
        raise Refused("a chunk needs two tokens or more for one to be scored")
    nll, position = [], 0
    for block in model.logits(ids, chunk):
        logp = log_softmax(block)
        for row in logp:
            position += 1  # the token that this row predicts
            if position < len(ids) and position % chunk:
                nll.append(-row[ids[position]])
    nll = np.array(nll)
    print(f"tokens      {len(ids)} in chunks of {chunk}, {len(nll)} scored")
    print(f"mean NLL    {nll.mean():.9f} +- {nll.std() / math.sqrt(len(nll)):.6f} nats")
    print(f"perplexity  {math.exp(nll.mean()):.9f}")


def cmd_golden(args):
    """Write the logits of every position as a golden file, and say what rounding cost."""
    model, ids = Model(args.model), read_ids(args.ids)
    kl = []
    # No name and no time in the gzip header: the same logits give the same file.
    with open(args.output, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
        f.write(GOLDEN_HEADER.pack(GOLDEN_MAGIC, len(ids), model.vocab))
        for block in model.logits(ids, args.chunk or len(ids)):
            for row in block:
                hi, step, q = quantise_row(row)
                planes = np.stack([q & 255, q >> 8]).astype(np.uint8)
                f.write(struct.pack("<ff", hi, step) + planes.tobytes())
                kl.append(kl_divergence(row, expand_row(hi, step, q)))
    print(f"{len(ids)} x {model.vocab} logits in {args.output}")
    print(f"KL(float64 || stored): mean {np.mean(kl):.3e}, max {np.max(kl):.3e} nats")


def cmd_rows(args):
    """Write the logits of some positions, as float32."""
    model, ids = Model(args.model), read_ids(args.ids)
    if max(args.positions) >= len(ids):
        raise Refused(f"position {max(args.positions)}: there are {len(ids)} ids")
    logits = np.concatenate(list(model.logits(ids, args.chunk or len(ids))))[args.positions]
    with open(args.output, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
        f.write(GOLDEN_HEADER.pack(ROWS_MAGIC, len(args.positions), model.vocab))
        f.write(np.array(args.positions, "<u4").tobytes() + logits.astype("<f4").tobytes())
    print(f"{len(args.positions)} x {model.vocab} logits in {args.output}")


def cmd_kl(args):
    """Compare LOGITS with GOLDEN, position by position."""
    rows, vocab, golden = read_golden(args.golden)
    kl, moved = [], []
    for r, (p, q) in enumerate(zip(golden, read_logits(args.logits, rows, vocab))):
        if not np.isfinite(q).all():
            raise Refused(f"{args.logits}: row {r} is not finite")
        kl.append(kl_divergence(p, q))
        if np.argmax(p) != np.argmax(q):
            moved.append(r)
    print(f"mean KL   {np.mean(kl):.6e} nats over {rows} positions")
    print(f"max KL    {np.max(kl):.6e} nats at position {int(np.argmax(kl))}")
    print(f"argmax    {len(moved)} of {rows} differ"
          + (f": positions {' '.join(map(str, moved[:16]))}" if moved else ""))


def positive(text):
    """An argparse type: a whole number above zero."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(text)


def position_list(text):
    """An argparse type: whole numbers separated by commas."""
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of positions: 0,1,47")
    return [int(word) for word in words]


def main():
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name, run):
        sub = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        sub.set_defaults(run=run)
        return sub

    def model_command(name, run):
        sub = command(name, run)
        sub.add_argument("model", metavar="MODEL", help="GGUF file")
        sub.add_argument("ids", metavar="IDS", help="text file of token ids")
        sub.add_argument("--chunk", type=positive, metavar="N",
                         help="tokens a sequence (default: all in one)")
        return sub

    sub = model_command("logits", cmd_logits)
    sub.add_argument("-o", "--output", required=True, metavar="F", help="file to write")
    sub.add_argument("--f64", action="store_true", help="write float64 instead of float32")
    model_command("perplexity", cmd_perplexity)
    sub = model_command("golden", cmd_golden)
    sub.add_argument("-o", "--output", required=True, metavar="F", help="file to write")
    sub = model_command("rows", cmd_rows)
    sub.add_argument("--positions", required=True, type=position_list, metavar="P,P...",
                     help="positions in IDS, the first is 0")
    sub.add_argument("-o", "--output", required=True, metavar="F", help="file to write")
    sub = command("kl", cmd_kl)
    sub.add_argument("golden", metavar="GOLDEN", help="golden file")
    sub.add_argument("logits", metavar="LOGITS", help="raw float32 or float64, or a golden file")

    args = parser.parse_args()
    try:
        args.run(args)
    except (Refused, OSError) as error:
        progress("")
        sys.exit(f"reference: {error}")


if __name__ == "__main__":
    main()
