# Makes a Windows for Wine, with Python, what the package depends on, and a simulated NVML: build.sh PRODUCT MODULE
set -eu
home=$(dirname "$(dirname "$1")")
here=$PWD
cd "$(dirname "$home")" # a scratch folder

sh "$here/../unpack.sh" "$2" windows-amd64 "$home/python"

python3 -m venv venv
venv/bin/pip install -q --target "$home/site" --only-binary :all: --platform win_amd64 --python-version 3.11 \
    opentelemetry-distro opentelemetry-exporter-otlp psutil nvidia-ml-py 'textual >= 8'

export WINEPREFIX="$home/prefix" WINEDEBUG=-all
wine wineboot --init
wine wineboot --shutdown
x86_64-w64-mingw32-gcc -std=gnu11 -O2 -shared -static -pthread -include "$here/posix.h" "$here/../fakenvml/fakenvml.c" -lm \
    -o "$home/prefix/drive_c/windows/system32/nvml.dll"
