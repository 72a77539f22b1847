#!/usr/bin/env python3
"""Writes test/llm/token_golden.txt: strings that tell each tokenizer rule from its neighbours.

A hand-written list hides wrong splits, because merges mend most of them. So strings are drawn at
random from awkward alphabets and kept where Hugging Face's tokenizer gives other ids than a copy
of it with one rule changed. The ids written are those of the unchanged tokenizer.

    pip install tokenizers gguf
    tools/tokenizer_golden.py gpt-2=A.gguf llama-bpe=B.gguf qwen2=C.gguf smollm=D.gguf \\
        llama-spm=E.gguf > test/llm/token_golden.txt
"""
import random
import sys

import gguf
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
KEEP = 6  # strings kept for a changed rule

# (name of the change, what to replace in the expression, by what)
GPT2_CHANGES = [
    ("contractions ignore case", "'s|'t|'re|'ve|'m|'ll|'d", "(?i:'s|'t|'re|'ve|'m|'ll|'d)"),
    ("no contractions", "'s|'t|'re|'ve|'m|'ll|'d|", ""),
    ("any space before letters", r" ?\p{L}+", r"\s?\p{L}+"),
    ("no space before numbers", r" ?\p{N}+", r"\p{N}+"),
    ("numbers are ASCII", r" ?\p{N}+", r" ?[0-9]+"),
    ("marks are letters", r" ?\p{L}+", r" ?[\p{L}\p{M}]+"),
    ("runs of spaces stay whole", r"\s+(?!\S)|", ""),
    ("spaces are ASCII", r"|\s+(?!\S)|\s+", r"|[ \t\r\n\f\v]+(?![^ \t\r\n\f\v])|[ \t\r\n\f\v]+|\s"),
]
LLAMA3_CHANGES = [
    ("contractions keep case", "(?i:'s", "(?:'s"),
    ("no contractions", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|", ""),
    ("only a space before letters", r"[^\r\n\p{L}\p{N}]?\p{L}+", r" ?\p{L}+"),
    ("a line feed before letters", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"[^\p{L}\p{N}]?\p{L}+"),
    ("marks are letters", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"),
    ("no line feeds behind signs", r"[\r\n]*", ""),
    ("no space before signs", r" ?[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{N}]+"),
    ("line feeds are spaces", r"|\s*[\r\n]+", ""),
    ("runs of spaces stay whole", r"\s+(?!\S)|", ""),
    ("long s is no s", "(?i:'s|", "'[sS]|(?i:"),
]


def read(path):
    fields = gguf.GGUFReader(path).fields
    return {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer")}


def bpe(data, ignore_merges=False):
    kinds = data["tokenizer.ggml.token_type"]
    vocab = {t: i for i, t in enumerate(data["tokenizer.ggml.tokens"]) if kinds[i] == 1}
    merges = [tuple(m.split(" ")) for m in data["tokenizer.ggml.merges"]]
    return models.BPE(vocab, merges, ignore_merges=ignore_merges)


def split(expression):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False,
                                                             use_regex=False)])


def make(model, pre=None, normalizer=None):
    tokenizer = Tokenizer(model)
    if pre:
        tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


def changed(expression, changes):
    for name, old, new in changes:
        assert old in expression, name
        try:
            yield name, split(expression.replace(old, new, 1))
        except Exception:  # an expression that this engine does not take
            continue


def gpt2(data):
    model = bpe(data)
    yield "", make(model, pre_tokenizers.ByteLevel(add_prefix_space=False))
    for name, pre in changed(GPT2, GPT2_CHANGES):
        yield name, make(model, pre)
    yield "llama-bpe's rules", make(model, split(LLAMA3))


def smollm(data):
    model = bpe(data)
    last = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def digits(alone):
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=alone), last])

    yield "", make(model, digits(True))
    yield "numbers stay whole", make(model, digits(False))
    yield "gpt-2's rules", make(model, last)
    yield "numbers are ASCII", make(model, pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex("[0-9]"), "isolated"), last]))
    for name, pre in changed(GPT2, GPT2_CHANGES):
        both = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre])
        yield name, make(model, both)


def llama3(data):
    model, plain = bpe(data, True), bpe(data)
    yield "", make(model, split(LLAMA3))
    yield "merges are not ignored", make(plain, split(LLAMA3))
    yield "two digits", make(model, split(LLAMA3.replace("{1,3}", "{1,2}")))
    yield "all digits", make(model, split(LLAMA3.replace("{1,3}", "+")))
    yield "digits are ASCII", make(model, split(LLAMA3.replace(r"\p{N}{1,3}", "[0-9]{1,3}")))
    yield "form C", make(model, split(LLAMA3), normalizers.NFC())
    for name, pre in changed(LLAMA3, LLAMA3_CHANGES):
        yield name, make(model, pre)


def qwen2(data):
    model = bpe(data)
    yield "", make(model, split(QWEN2), normalizers.NFC())
    yield "no form C", make(model, split(QWEN2))
    yield "form KC", make(model, split(QWEN2), normalizers.NFKC())
    yield "form D", make(model, split(QWEN2), normalizers.NFD())
    yield "three digits", make(model, split(LLAMA3), normalizers.NFC())
    yield "merges are ignored", make(bpe(data, True), split(QWEN2), normalizers.NFC())
    for name, pre in changed(QWEN2, LLAMA3_CHANGES):
        yield name, make(model, pre, normalizers.NFC())


def spm(data):
    tokens, kinds = data["tokenizer.ggml.tokens"], data["tokenizer.ggml.token_type"]
    scores = data["tokenizer.ggml.scores"]
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = []
    for i, text in enumerate(tokens):
        cuts = [(text[:k], text[k:]) for k in range(1, len(text)) if kinds[i] == 1]
        cuts = sorted((vocab[a], vocab[b], a, b) for a, b in cuts if a in vocab and b in vocab)
        merges += [(scores[i], a, b) for _, _, a, b in cuts]
    merges.sort(key=lambda m: -m[0])
    merges = [(a, b) for _, a, b in merges]
    space = normalizers.Replace(" ", "\u2581")
    prefixed = normalizers.Sequence([normalizers.Prepend("\u2581"), space])

    def model(fallback=True):
        return models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=fallback)

    yield "", make(model(), None, prefixed)
    yield "no space before the text", make(model(), None, space)
    yield "no fallback to bytes", make(model(False), None, prefixed)
    yield "form KC", make(model(), None, normalizers.Sequence([normalizers.NFKC(), prefixed]))
    yield "spaces are joined", make(model(), None, normalizers.Sequence(
        [normalizers.Replace(Regex(" +"), " "), prefixed]))
    yield "a space only where there is none", make(model(), None, normalizers.Sequence(
        [normalizers.Replace(Regex("^ "), ""), prefixed]))
    yield "words apart", make(model(), pre_tokenizers.Split("\u2581", "merged_with_next"), prefixed)


RULES = {"gpt-2": gpt2, "smollm": smollm, "llama-bpe": llama3, "qwen2": qwen2, "llama-spm": spm}

SPACES = ("\t \n \r \r\n \x0b \x0c \x85 \xa0 \u1680 \u2003 \u2009 \u2028 \u202f \u3000 "
          "\u200b \ufeff").split(" ") + [" ", "  ", "   "]
NUMBERS = ("0 7 12 123 1234 12345 1234567 \xb2 \xbd \u0663\u0664 \u2167 \u096f \u4e09 "
           "\u3007 \U0001d7d8").split(" ")
LETTERS = ("a b I he you WE they don isn hello Hello WORLD camelCase e\u0301 \xe9 n\u0303 "
           "A\u030a \u212b \u2126 \ufb01 \xdf \u0131 \u042f \u03bb \u05d0 \u0639 "
           "\u0915\u094d\u0937 \u0e01\u0e33 \ud55c \u1112\u1161\u11ab \u30ab\u3099 "
           "\uff76\uff9e \u4e2d\u6587 \U00020000").split(" ")
MARKS = ("\u0301 \u0327 \u0323 \u0308 \ufe0f \u093e \u0344 \u0958 \u3099 \u20dd").split(" ")
SIGNS = ("! ? . , ... :: -- -> == // ( ) [ ] { } # @ $ % & * _ \" \u2026 \u201c \u3002 "
         "\u20ac \u2581 <s> </s> <|im_end|> <0x0A>").split(" ")
QUOTES = ["'", "'", "'", "\u2019", "`"]
TAILS = "s S t T re RE rE ve VE Ve m M ll LL lL d D \u017f l r v e".split()
EMOJI = ("\U0001f600 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469 \u2764\ufe0f "
         "\U0001f1e9\U0001f1ea").split(" ")
ALPHABETS = [SPACES, QUOTES, TAILS, NUMBERS, LETTERS, MARKS, SIGNS, EMOJI]


def draw(generator, words):
    count = generator.choice([1, 2, 2, 3, 3, 4, 5, 6])
    kind = generator.random()
    if kind < 0.2:
        return "".join(generator.choice(x) for x in (LETTERS, QUOTES, TAILS)[:count])
    if kind < 0.3:
        return "".join(generator.choice(words) for _ in range(1 + count % 2))
    pool = generator.sample(ALPHABETS, 3) if kind < 0.6 else ALPHABETS
    return "".join(generator.choice(generator.choice(pool)) for _ in range(count))


def escaped(text):
    return "".join(chr(b) if 33 <= b < 127 and chr(b) not in '\\"#' else "\\x%02x" % b
                   for b in text.encode())


def words_of(tokens):
    """Tokens as text, which tell whether merges are ignored."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printed]
    letters = {chr(b): b for b in printed} | {chr(256 + i): b for i, b in enumerate(others)}
    words = []
    for token in tokens:
        try:
            words.append(bytes(letters[c] for c in token).decode())
        except (KeyError, UnicodeDecodeError):
            continue
    return words


def main():
    print("# Written by tools/tokenizer_golden.py with Hugging Face's tokenizers: vocabulary, string\n"
          "# (bytes as \\xNN), ids, and the changed rule under which the ids would differ.")
    for name, path in (argument.split("=", 1) for argument in sys.argv[1:]):
        generator, data = random.Random(name), read(path)
        words = words_of(data["tokenizer.ggml.tokens"])
        drawn = {draw(generator, words) for _ in range(20000)}
        if name == "llama-bpe":
            drawn.update(words)
        strings = sorted(drawn, key=lambda s: (len(s.encode()), s))
        rules = list(RULES[name](data))
        true = [e.ids for e in rules[0][1].encode_batch(strings, add_special_tokens=False)]
        taken = set()
        for change, tokenizer in rules[1:]:
            other = [e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)]
            telling = [i for i in range(len(strings)) if true[i] != other[i] and i not in taken]
            # Two of the shortest, the others from anywhere.
            chosen = telling[:KEEP // 2]
            rest = telling[KEEP // 2:]
            chosen += generator.sample(rest, min(len(rest), KEEP - len(chosen)))
            taken.update(chosen)
            for i in chosen:
                print(name, '"%s"' % escaped(strings[i]), ",".join(map(str, true[i])), "#", change)


main()
