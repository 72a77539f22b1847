#!/usr/bin/env bash
# cuda_toolchain.sh [FOLDER]: makes sure that CUDA's compiler can be used, and prints its path. One
# that is installed (PATH, CUDA_HOME, /usr/local/cuda) and new enough is taken; otherwise NVIDIA's
# wheels of it are installed by pip into FOLDER (build/cuda_toolchain), where CMake looks too: 270 MB,
# nothing outside the folder changes. No GPU and no driver is needed to compile.
# Exit code 1, and a line that says why, when there is none to be had.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
folder=${1:-build/cuda_toolchain}
least=12.4
version=13.0.88

new_enough() { # new_enough NVCC
    local has
    has=$("$1" --version 2>/dev/null | sed -n 's/.*V\([0-9]*\.[0-9]*\)\..*/\1/p')
    [ -n "$has" ] && [ "$(printf '%s\n%s\n' "$least" "$has" | sort -V | head -n 1)" = "$least" ]
}

root=$folder/nvidia/cu13
for nvcc in "$(command -v nvcc)" "${CUDA_HOME:-/none}/bin/nvcc" "${CUDA_PATH:-/none}/bin/nvcc" \
    /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc "$root/bin/nvcc"; do
    if [ -x "$nvcc" ] && new_enough "$nvcc"; then
        echo "$nvcc"
        exit 0
    fi
done

case "$(uname -s)-$(uname -m)" in
Linux-x86_64 | Linux-aarch64) ;;
*)
    echo "no nvcc, and NVIDIA has no wheels of it for $(uname -s) $(uname -m)" >&2
    exit 1
    ;;
esac
if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "no nvcc, and no pip to fetch it with" >&2
    exit 1
fi
partial=$folder.partial.$$
trap 'rm -rf "$partial"' EXIT
echo "no nvcc: fetching $version with pip into $folder" >&2
# The compiler, its back end, the headers that every CUDA file includes, and the run time's libraries.
if ! python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
    --no-compile --target "$partial" nvidia-cuda-nvcc==$version nvidia-nvvm==$version \
    nvidia-cuda-crt==$version nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 >&2; then
    echo "no nvcc, and pip could not fetch it" >&2
    exit 1
fi
top=$partial/nvidia/cu13
chmod +x "$top"/bin/* "$top"/nvvm/bin/*
[ -e "$top/lib64" ] || ln -s lib "$top/lib64" # where nvcc looks for its run time
mkdir -p "$(dirname "$folder")"
rm -rf "$folder"
mv "$partial" "$folder"
new_enough "$root/bin/nvcc" || {
    echo "the nvcc that pip fetched does not run" >&2
    exit 1
}
echo "$PWD/$root/bin/nvcc"
