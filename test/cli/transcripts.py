#!/usr/bin/env python3
"""test/cli/transcripts.py [--brim FILE] [--update] [NAME...]: runs the transcripts of the command.

A case is a file cases/NAME.txt that reads like a terminal:

    # a comment; "# needs: model" (or "data", "fake") skips the case where that is absent
    $ brim run --thread 4          a command, run by /bin/sh in an empty folder of the case's own
    2| brim run: there is ...      a line on standard error
    a line on standard output
    [exit 2]                       the exit code, when it is not 0

The case's folder is shown as $FOLDER, a local server's port as PORT.
In an expected line {{REGEX}} stands for whatever REGEX matches. A line "..." stands for any number
of lines. Commands of one case share their folder. They see $BRIM_MODEL (the real model, if it is
there), $BRIM_DATA, $TOOLS (this folder), and a HOME and BRIM_MODELS of the case's own. GPUs of the
machine are hidden from them; BRIM_LIBCUDA=$FAKE_LIBCUDA shows two that are made up.

--update rewrites the cases whose output differs, keeping expected lines that still match; read
the difference before you commit it.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TIMEOUT_S = 300


def find_model():
    for path in (os.environ.get("BRIM_MODEL"), os.path.join(ROOT, "models", "smollm2-135m.gguf")):
        if path and os.path.exists(path):
            return os.path.abspath(path)
    return None


def find_data():
    path = os.environ.get("BRIM_DATA") or os.path.join(os.path.dirname(ROOT), "shared", "data")
    return os.path.abspath(path) if os.path.isdir(path) else None


def find_fake(brim):
    """The driver without a GPU (test/device/fake_libcuda.c) of the same build."""
    path = os.path.join(os.path.dirname(os.path.abspath(brim)), "test", "fake_libcuda.so")
    return path if os.path.exists(path) else None


def environment(brim, folder):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("BRIM_", "XDG_", "HF_", "CUDA_"))}
    bin_folder = os.path.join(folder, "bin")
    os.mkdir(bin_folder)
    os.symlink(os.path.abspath(brim), os.path.join(bin_folder, "brim"))
    env.update(PATH=bin_folder + os.pathsep + env.get("PATH", ""), HOME=os.path.join(folder, "home"),
               BRIM_MODELS=os.path.join(folder, "models"), LC_ALL="C.UTF-8", TERM="dumb",
               TOOLS=HERE, BRIM_SOURCE=ROOT, BRIM_DEVICE="cpu",
               BRIM_LIBCUDA="/nonexistent/libcuda.so.1", BRIM_LIBNVML="/nonexistent")
    for name, value in (("BRIM_MODEL", find_model()), ("BRIM_DATA", find_data()),
                        ("FAKE_LIBCUDA", find_fake(brim))):
        if value:
            env[name] = value
    return env


def run_command(command, env, folder):
    """The lines that a case has below this command."""
    work = os.path.join(folder, "work")
    os.makedirs(work, exist_ok=True)
    result = subprocess.run(["/bin/sh", "-c", command], cwd=work, env=env, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S)
    lines = []
    for stream, prefix in ((result.stdout, ""), (result.stderr, "2| ")):
        text = stream.decode("utf-8", "backslashreplace").replace(folder, "$FOLDER")
        text = re.sub(r"127\.0\.0\.1:\d{4,5}\b", "127.0.0.1:PORT", text)
        lines += [(prefix + line).replace("\r", "\\r") for line in text.split("\n")[:-1]]
        if text and not text.endswith("\n"):
            lines.append(prefix + text.split("\n")[-1] + "\\no newline")
    if result.returncode:
        lines.append(f"[exit {result.returncode}]")
    return lines


def line_matches(wanted, got):
    if "{{" not in wanted:
        return wanted == got
    parts = re.split(r"\{\{(.*?)\}\}", wanted)
    pattern = "".join(part if k % 2 else re.escape(part) for k, part in enumerate(parts))
    return re.fullmatch(pattern, got) is not None


def all_match(wanted, got):
    """Whether the lines match, with "..." for any number of them."""
    if not wanted:
        return not got
    if wanted[0] == "...":
        return any(all_match(wanted[1:], got[k:]) for k in range(len(got) + 1))
    return bool(got) and line_matches(wanted[0], got[0]) and all_match(wanted[1:], got[1:])


def parse(text):
    """The case's head (comments) and its (command, expected lines)."""
    head, steps = [], []
    for line in text.split("\n")[:-1]:
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif steps:
            steps[-1][1].append(line)
        else:
            head.append(line)
    return head, steps


def show_difference(name, command, wanted, got):
    print(f"{name}: $ {command}")
    for line in difflib.unified_diff(wanted, got, "expected", "found", lineterm="", n=2):
        print("    " + line)


def run_case(path, brim, update):
    """"passed", "failed", or why it was skipped."""
    name = os.path.splitext(os.path.basename(path))[0]
    with open(path, encoding="utf-8") as file:
        text = file.read()
    head, steps = parse(text)
    needs = {word for line in head if line.startswith("# needs:") for word in line[8:].split()}
    # What takes minutes under a sanitizer says that it needs the release build.
    release = not os.environ.get("BRIM_SANITIZE")
    for word, there in (("model", find_model()), ("data", find_data()), ("fake", find_fake(brim)),
                        ("release", release)):
        if word in needs and not there:
            return f"skipped: no {word}"
    out, good = [line + "\n" for line in head], True
    with tempfile.TemporaryDirectory(prefix="brim-cli-") as folder:
        env = environment(brim, folder)
        for command, wanted in steps:
            got = run_command(command, env, folder)
            # Blank lines and comments before the next command belong to the case, not the output.
            tail = len(wanted)
            while tail and (not wanted[tail - 1] or wanted[tail - 1].startswith("# ")):
                tail -= 1
            wanted, after = wanted[:tail], wanted[tail:]
            same = all_match(wanted, got) or all_match(wanted + after, got)
            if not same:
                good = False
                show_difference(name, command, wanted, got)
            out += [f"$ {command}\n"] + [line + "\n" for line in (wanted if same else got) + after]
    if not good and update:
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(out))
        return "updated"
    return "passed" if good else "failed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--brim", default=os.path.join(ROOT, "build", "brim"))
    parser.add_argument("--update", action="store_true", help="rewrite the cases that differ")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    cases = os.path.join(HERE, "cases")
    names = options.names or sorted(name[:-4] for name in os.listdir(cases) if name.endswith(".txt"))
    failed = []
    for name in names:
        result = run_case(os.path.join(cases, name + ".txt"), options.brim, options.update)
        if result != "passed":
            print(f"{name}: {result}")
        if result == "failed":
            failed.append(name)
    print(f"{len(names) - len(failed)} of {len(names)} cases good")
    if failed:
        print(f"to see it again: test/cli/transcripts.py --brim {options.brim} {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
