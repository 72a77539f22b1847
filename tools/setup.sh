#!/usr/bin/env bash
# setup.sh [--fuzz]: installs what Brim's build and tests need, on Debian 12, Ubuntu 22.04 or later.
# What is there already is found by asking for it, so that nothing is done when nothing is missing.
# --fuzz also wants clang with libFuzzer.
set -euo pipefail

packages=()
need() { # need PACKAGE COMMAND...: the package is wanted when the command fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || packages+=("$package")
}
library() { # library PACKAGE NAME: by its pkg-config name
    need "$1" pkg-config --exists "$2"
}

compiles() { # compiles COMPILER [OPTION...]: whether a program can be built
    local dir
    dir=$(mktemp -d)
    echo 'int main(void) { return 0; }' >"$dir/a.c"
    "$@" "$dir/a.c" -o "$dir/a"
    local code=$?
    rm -rf "$dir"
    return $code
}
fuzzer_links() {
    local dir code=0
    dir=$(mktemp -d)
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return 0; }' >"$dir/a.c"
    clang -fsanitize=fuzzer "$dir/a.c" -o "$dir/a" || code=1
    rm -rf "$dir"
    return $code
}

need build-essential compiles cc
need cmake cmake --version
need ninja-build ninja --version
need pkg-config pkg-config --version
need python3 python3 --version
need ca-certificates test -s /etc/ssl/certs/ca-certificates.crt
need python3-pip python3 -m pip --version
library libjansson-dev jansson
library libhwloc-dev hwloc
library libutf8proc-dev libutf8proc
library libcurl4-openssl-dev libcurl
library libedit-dev libedit
library libmd-dev libmd
library libcmocka-dev cmocka
library zlib1g-dev zlib
# python3 needs numpy nowhere: the golden files are in the repository.
if [ "${1:-}" = --fuzz ]; then
    need clang fuzzer_links
fi

[ ${#packages[@]} -gt 0 ] || exit 0

echo "missing packages: ${packages[*]}" >&2
if ! command -v apt-get >/dev/null; then
    echo "This is not Debian or Ubuntu: please install what these packages hold, then run it again." >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    sudo=sudo
    if ! command -v sudo >/dev/null; then
        echo "Please install them as root: apt-get update && apt-get install ${packages[*]}" >&2
        exit 1
    fi
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# Without recommended packages, except for clang, whose sanitizer run time is one.
recommends=--no-install-recommends
case " ${packages[*]} " in *" clang "*) recommends= ;; esac
$sudo apt-get install -y -qq $recommends "${packages[@]}" >/dev/null
echo "installed: ${packages[*]}" >&2
